"""Pickles without their long strings: the bytes are skipped, and the rest is what it was."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from fdsim.data.plain_pickle import PlainUnpickler
from fdsim.data.short_pickle import load_short

LONG = 2**20


def old_text(size: int) -> bytes:
    """Write a text of Python 2."""
    return b"T" + size.to_bytes(4, "little") + b"x" * size


def unpickler(file: Any) -> pickle.Unpickler:
    return PlainUnpickler(file, encoding="bytes")


def written(path: Path, *values: bytes) -> Path:
    path.write_bytes(b"\x80\2](" + b"".join(values) + b"e.")
    return path


def test_the_first_long_string_is_empty(tmp_path: Path) -> None:
    path = written(
        tmp_path / "p", b"K\1", old_text(LONG - 1), old_text(5), old_text(LONG), b"K\2", old_text(LONG)
    )
    assert load_short(path, unpickler) == [1, b"x" * (LONG - 1), b"xxxxx", b"", 2, b"x" * LONG]


def test_its_bytes_are_not_read(tmp_path: Path) -> None:
    """A gigabyte that takes no room on the disk would be a gigabyte in memory."""
    path, size = tmp_path / "p", 2**30
    with open(path, "wb") as file:
        file.write(b"\x80\2](K\1T" + size.to_bytes(4, "little"))
        file.seek(size, os.SEEK_CUR)
        file.write(b"K\2e.")
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert load_short(path, unpickler) == [1, b"", 2]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


@pytest.mark.parametrize("protocol", range(3, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "value", [b"y" * 3 * LONG, "y" * 3 * LONG, bytearray(3 * LONG)], ids=["bytes", "text", "array"]
)
def test_strings_of_other_kinds_are_read(tmp_path: Path, protocol: int, value: Any) -> None:
    """Nothing that Python 3 writes is the text of Python 2; frames are no strings, either."""
    if isinstance(value, bytearray) and protocol < 5:
        pytest.skip("made by a call, which a plain pickle may not have")
    path = tmp_path / "p"
    path.write_bytes(pickle.dumps([1, value, list(range(300_000))], protocol))
    assert load_short(path, unpickler) == [1, value, list(range(300_000))]


@pytest.mark.parametrize("left", [1, 2, LONG, LONG + 3])
def test_a_file_that_is_cut_short_is_refused(tmp_path: Path, left: int) -> None:
    path = written(tmp_path / "p", b"K\1", old_text(2 * LONG), b"K\2")
    path.write_bytes(path.read_bytes()[:-left])
    with pytest.raises((EOFError, pickle.UnpicklingError)):
        load_short(path, unpickler)


class Marks:
    """Leaves a file behind when it is unpickled."""

    def __reduce__(self) -> Any:
        return (Path("marked").touch, ())


@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
def test_code_is_never_called(tmp_path: Path, first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    harm = pickle.dumps(Marks(), 2)[2:-1]
    values = [harm, old_text(LONG)] if first else [old_text(LONG), harm]
    with pytest.raises(pickle.UnpicklingError, match="wants to import"):
        load_short(written(tmp_path / "p", *values), unpickler)
    assert not Path("marked").exists()
