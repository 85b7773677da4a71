"""Run folders that travel: packed, unpacked, and put to URLs."""

from __future__ import annotations

from pathlib import Path

import pytest

from fdsim.errors import InputError, StorageError
from fdsim.studies.results import RemoteFolder, pack, pack_small, unpack


def _run(folder: Path) -> Path:
    for name in (
        "run.json",
        "rounds/strategy=a b/part-0.parquet",
        "clients/part-0.parquet",
        "checkpoints/5",
        ".tmp/x",
        ".lock",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_arrives_as_it_left_without_what_is_half_written(tmp_path: Path) -> None:
    run = _run(tmp_path / "run")
    unpack(pack(run), tmp_path / "there")
    assert _files(tmp_path / "there") == _files(run) - {".tmp/x", ".lock"}
    unpack(pack_small(run), tmp_path / "small")
    assert _files(tmp_path / "small") == {"run.json", "rounds/strategy=a b/part-0.parquet"}


def test_what_arrives_replaces_what_was_there(tmp_path: Path) -> None:
    run, there = _run(tmp_path / "run"), _run(tmp_path / "there")
    (there / "rounds" / "strategy=a b" / "part-1.parquet").write_text("older")
    unpack(pack(run), there)
    assert "rounds/strategy=a b/part-1.parquet" not in _files(there)


@pytest.mark.parametrize("url", ["file://{}", "memory://fdsim-test"])
def test_results_go_to_a_url(tmp_path: Path, url: str) -> None:
    """A file system of pyarrow's own, and one that fsspec brings."""
    import fsspec

    run, where = _run(tmp_path / "run"), url.format(tmp_path / "store")
    remote = RemoteFolder(where)
    remote.check()
    remote.put(run, "trials/one")
    files, root = fsspec.url_to_fs(where)
    found = {name.split("trials/one/")[1] for name in files.find(root)}
    assert found == _files(run) - {".tmp/x", ".lock"}


def test_a_url_that_cannot_be_written_to_is_told_before_and_during(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    remote = RemoteFolder(f"file://{tmp_path}/file/below")
    with pytest.raises(InputError, match="results cannot be written there"):
        remote.check()
    with pytest.raises(StorageError, match="results cannot be written there"):
        remote.put(_run(tmp_path / "run"), "trials/one")
