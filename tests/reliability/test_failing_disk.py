"""A disk that fills up or fails, at any size and at any call: one clear error, and resuming gives the undisturbed run."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from warm_server import Server
from whole_runs import readable, same_run

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="preloads a library of Linux")

#: Two strategies, a checkpoint, a snapshot, an event log: every kind of file that a run has.
RUN: dict[str, Any] = {"options": {"rounds": 3, "checkpoints": 2}}


@pytest.fixture(scope="module")
def reference(failing: Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """An undisturbed run, and how many calls it made that change the disk."""
    folder = tmp_path_factory.mktemp("reference") / "run"
    told = failing.do("run", folder, **RUN)
    assert told["code"] == 0, told["said"]
    assert told["calls"] > 200
    return folder, int(told["calls"])


def fail_at(
    number: int,
    error: int,
    stays: bool,
    folder: Path,
    failing: Server,
    reference: Path,
    **job: Any,
) -> tuple[str, bool]:
    """Let a run's n-th call fail, and all later ones too if the fault `stays`; then resume it. Return what it was."""
    shutil.rmtree(folder, ignore_errors=True)
    told = failing.do("run", folder, fault=[number, error, int(stays)], **job)
    assert told["failed"], f"call {number} was never made"
    # A call that only tidies up may fail unnoticed; all else ends the run with an error of ours that names the reason.
    assert told["code"] in (0, 1), f"call {number} ({told['failed']}): {told['said']}"
    if told["code"] == 1:
        words = ("the disk is full",) if error == errno.ENOSPC else ("the disk refused", "Input/output error")
        assert any(word in told["said"] for word in words), (
            f"call {number} ({told['failed']}): {told['said']}"
        )
    if folder.exists():
        readable(folder)
    again = failing.do("run", folder, **job)
    assert again["code"] == 0, f"resumed after call {number} ({told['failed']}): {again['said']}"
    same_run(folder, reference)
    return str(told["failed"]), told["code"] == 0


@pytest.mark.reliability
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize(("error", "stays"), [(errno.ENOSPC, True), (errno.EIO, False)])
def test_every_call_that_changes_the_disk_fails_once(
    error: int, stays: bool, part: int, failing: Server, reference: tuple[Path, int], tmp_path: Path
) -> None:
    found, unnoticed, whole = Counter[str](), Counter[str](), reference[1]
    for number in range(1 + part, whole + 1, 4):
        call, tidying = fail_at(number, error, stays, tmp_path / "run", failing, reference[0], **RUN)
        found[call] += 1
        unnoticed[call] += tidying
    print(
        f"\n{errno.errorcode[error]}{' from there on' if stays else ' once'}, part {part} of 4: {found.total()} of "
        f"{whole} calls failed in turn {dict(found)}; unnoticed where they only tidy up: {dict(+unnoticed)}; all resumed, equal"
    )


@pytest.mark.reliability
def test_a_disk_of_every_size(small_disk: Path, server: Server, tmp_path: Path) -> None:
    """From 64 kB on, page by page, until the run fits."""
    assert server.do("run", tmp_path / "reference", **RUN)["code"] == 0
    size_kb, sizes, folder = 64, 0, small_disk / "run"

    def resize(size_kb: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={size_kb}k", str(small_disk)], check=True)

    while True:
        shutil.rmtree(folder, ignore_errors=True)
        resize(size_kb)
        told = server.do("run", folder, **RUN)
        assert told["code"] in (0, 1), told["said"]
        if told["code"] == 0:
            break
        assert "the disk is full" in told["said"], told["said"]
        if folder.exists():
            readable(folder)
        resize(10_000)
        again = server.do("run", folder, **RUN)
        assert again["code"] == 0, f"{size_kb} kB: {again['said']}"
        same_run(folder, tmp_path / "reference")
        size_kb, sizes = size_kb + 4, sizes + 1
    print(
        f"\nfull disks: {sizes} sizes from 64 to {size_kb - 4} kB, resumed with more room, equal; at {size_kb} kB it fits"
    )
    assert sizes > 20
