"""Disk trouble ends a run with one clear message; what was written before can be read and resumed."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from fake_run import FakeScenario

import fdsim
from fdsim import files as disk
from fdsim.errors import StorageError
from fdsim.files import exchange, write_whole
from fdsim.telemetry.folder import RunFolder

SCENARIO: Any = FakeScenario()


def test_a_full_disk_ends_the_run_and_resuming_with_more_room_gives_the_whole_run(
    small_disk: Path, tmp_path: Path, fake: ModuleType, checks: Any
) -> None:
    settings: dict[str, Any] = {"rounds": 80, "every": 5, "labels": ("s",)}
    with pytest.raises(
        StorageError, match=r"the disk is full\. What was written before is safe; free some space.*--resume"
    ):
        fake.fake_run(small_disk / "run", **settings)
    fake.fake_run(tmp_path / "reference", **settings)
    rounds = checks.readable(small_disk / "run", tmp_path / "reference")
    assert rounds >= 5
    assert fdsim.open_run(small_disk / "run").status in ("failed", "interrupted")
    subprocess.run(["mount", "-o", "remount,size=100M", str(small_disk)], check=True)
    fake.fake_run(small_disk / "run", resume=True, **settings)
    checks.same(small_disk / "run", tmp_path / "reference")


@pytest.mark.parametrize("after", [1, 7, 23, 40, 61])
def test_writes_that_fail_from_some_moment_on_leave_a_run_that_resumes(
    after: int, tmp_path: Path, fake: ModuleType, finished: Path, checks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, real = [after], os.fsync

    def failing(handle: int) -> None:
        left[0] -= 1
        if left[0] <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(disk.os, "fsync", failing)
    with pytest.raises((StorageError, OSError), match=r"the disk is full|No space left"):
        fake.fake_run(tmp_path / "run")
    monkeypatch.undo()
    checks.readable(tmp_path / "run", finished)
    fake.fake_run(tmp_path / "run", resume=True)
    checks.same(tmp_path / "run", finished)


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refused)
    with pytest.raises(StorageError, match=r"run: the folder cannot be written to.*--out"):
        RunFolder.create(tmp_path / "run", SCENARIO)


def test_a_disk_that_becomes_read_only_ends_the_run(
    fake: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    learner = fake.FakeLearner(4, 1, "s")
    with RunFolder.create(tmp_path / "run", SCENARIO) as run, run.logs["s"] as log:
        log.append(*learner.step())
        log.flush()
        monkeypatch.setattr(disk, "open", refused, raising=False)
        log.append(*learner.step())
        with pytest.raises(StorageError, match="the folder cannot be written to"):
            log.flush()
        assert len(fdsim.open_run(tmp_path / "run").rounds) == 1
        monkeypatch.undo()


def test_an_old_file_stays_until_the_new_one_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_whole(tmp_path / "a", b"old", temporary=tmp_path / "tmp")

    def refused(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(disk.os, "fsync", refused)
    with pytest.raises(StorageError, match=r"a: the disk refused \(Input/output error\)"):
        write_whole(tmp_path / "a", b"new", temporary=tmp_path / "tmp")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert not list((tmp_path / "tmp").iterdir())


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux can exchange two folders in one step"
)
def test_two_folders_change_names(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    assert exchange(tmp_path / "one", tmp_path / "other")
    assert (tmp_path / "one" / "file").read_text() == "other"
    assert (tmp_path / "other" / "file").read_text() == "one"
    with pytest.raises(FileNotFoundError):
        exchange(tmp_path / "one", tmp_path / "nowhere")
