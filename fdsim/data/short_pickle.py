"""A pickle of Python 2 without its first long string, which is skipped and not read: of a file of images, the images.

Where it begins, an unpickler says, which asks for all of it at once. The rest is then unpickled with an empty string in
its place. Both times the unpickler is the caller's, which decides what a pickle may do.
"""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

_LONG_BYTES = 2**20
#: An unpickler takes what it has used of a buffer at once, which must not look like a long string.
_BUFFER_BYTES = 2**15
#: The instruction that makes a string, whose length and bytes follow; and one that makes an empty string.
_STRING, _EMPTY = b"T", b"U\0"


class _LongStringError(Exception):
    """A long string begins here; never seen outside this module."""

    def __init__(self, start: int, size: int) -> None:
        super().__init__(start, size)
        self.start, self.size = start, size


class _UntilLong:
    """A file as an unpickler reads it, as far as the first long string."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.readline, self.peek = file.readline, file.peek

    def read(self, size: int) -> bytes:
        if size >= _LONG_BYTES:
            raise _LongStringError(self._file.tell(), size)
        return self._file.read(size)  # type: ignore[no-any-return]


def load_short(path: Path, unpickler: Callable[[Any], pickle.Unpickler]) -> Any:
    """Return what an unpickler makes of a file; its first string of a megabyte or more is empty."""
    with open(path, "rb", buffering=_BUFFER_BYTES) as file:
        try:
            return unpickler(_UntilLong(file)).load()
        except _LongStringError as error:
            found = error
        short = _without(file, found)
        if short is not None:
            return unpickler(io.BytesIO(short)).load()
        file.seek(0)
        return unpickler(file).load()


def _without(file: BinaryIO, found: _LongStringError) -> bytes | None:
    """Return a file's bytes with an empty string for a long one; None where that is of another kind, or cut short."""
    length = found.size.to_bytes(8, "little")
    wanted = _STRING + length[:4]
    start, end = found.start - len(wanted), found.start + found.size
    if any(length[4:]) or start < 0 or end > os.fstat(file.fileno()).st_size:
        return None
    file.seek(start)
    if file.read(len(wanted)) != wanted:
        return None
    file.seek(0)
    before = file.read(start)
    file.seek(end)
    return before + _EMPTY + file.read()
