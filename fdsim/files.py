"""Files that are whole or absent: written under another name, synced, renamed.

Everything fdsim writes goes through here: `write_whole` for content at hand, `ParquetStream` for records that come one
by one, `UnfinishedFile` for all else.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

from fdsim.errors import StorageError

Record = TypeVar("Record")

#: Inside a run folder: unfinished files of tables live here, where no reader of a table's folder meets them.
TEMPORARY = ".tmp"

_FULL = (errno.ENOSPC, errno.EDQUOT)
_NOT_WRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST)


@contextmanager
def storage_errors(path: Path, *, resumable: bool = True) -> Iterator[None]:
    """Turn an error of the operating system about `path` into one sentence with a remedy."""
    try:
        yield
    except OSError as error:
        safe = "What was written before is safe; " if resumable else ""
        raise StorageError(f"{path}: {_reason(error)}. {safe}{_remedy(error, resumable)}") from error


def _reason(error: OSError) -> str:
    if error.errno in _FULL:
        return "the disk is full"
    if error.errno in _NOT_WRITABLE:
        return "the folder cannot be written to"
    return f"the disk refused ({error.strerror or error})"


def _remedy(error: OSError, resumable: bool) -> str:
    if error.errno in _NOT_WRITABLE:
        return "make it writable or choose another folder with --out"
    first = "free some space" if error.errno in _FULL else "check the disk"
    return f"{first}, then continue with --resume" if resumable else f"{first}, then try again"


class UnfinishedFile:
    """A file under another name, which takes the name `path` when it is complete; an older one stays until then.

    As a context manager it gives the name to write to, and completes the file unless the block raises. The other name
    is hidden, beside `path`; with `temporary` it is in that folder, since some readers of a whole folder (polars)
    stumble over hidden files too. It never ends in .parquet, so no search for Parquet files meets half a one.
    """

    def __init__(self, path: Path, *, temporary: Path | None = None) -> None:
        self.path = path
        if temporary is None:
            # Several processes, on several machines even, may write the same file.
            self.waiting = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
        else:
            self.waiting = temporary / f"{path.parent.name}.{path.name}.tmp"

    def complete(self) -> None:
        """Sync the file and give it its name."""
        with open(self.waiting, "r+b" if sys.platform == "win32" else "rb") as file:
            os.fsync(file.fileno())
        os.replace(self.waiting, self.path)
        sync_folder(self.path.parent)

    def discard(self) -> None:
        """Remove what is left under the other name; nothing, once complete."""
        # A folder that refuses this has refused the write before, and that error is on its way up.
        with suppress(OSError):
            self.waiting.unlink(missing_ok=True)

    def __enter__(self) -> Path:
        for folder in dict.fromkeys((self.path.parent, self.waiting.parent)):
            folder.mkdir(parents=True, exist_ok=True)
        return self.waiting

    def __exit__(self, kind: type[BaseException] | None, value: object, traceback: object) -> None:
        try:
            if kind is None:
                self.complete()
        finally:
            self.discard()


def write_whole(path: Path, content: bytes, *, temporary: Path | None = None) -> None:
    """Write a file that appears under its name only when complete."""
    with storage_errors(path), UnfinishedFile(path, temporary=temporary) as waiting:
        waiting.write_bytes(content)


class ParquetStream(Generic[Record]):
    """Records written as they come to one Parquet file, which appears under its name only when complete.

    `to_table` turns a list of records into rows. A group of rows is compressed and written while the records of the
    next one come, so memory stays at twice `rows_per_group` rows.
    """

    def __init__(
        self,
        path: Path,
        schema: Any,
        to_table: Callable[[list[Record]], Any],
        *,
        rows_per_group: int,
        temporary: Path | None = None,
        resumable: bool = True,
    ) -> None:
        self.path, self._schema, self._to_table = path, schema, to_table
        self._rows_per_group, self._resumable = rows_per_group, resumable
        self._file = UnfinishedFile(path, temporary=temporary)
        self._writer: Any = None
        self._waiting: list[Record] = []
        self._rows = 0
        self._thread = ThreadPoolExecutor(1)
        self._under_way: Future[None] | None = None

    def __enter__(self) -> ParquetStream[Record]:
        import pyarrow.parquet as pq

        with storage_errors(self.path, resumable=self._resumable):
            self._writer = pq.ParquetWriter(self._file.__enter__(), self._schema, compression="zstd")
        return self

    def append(self, record: Record, *, rows: int = 1) -> None:
        """Take the next record, which makes `rows` rows."""
        self._waiting.append(record)
        self._rows += rows
        if self._rows >= self._rows_per_group:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            table = self._to_table(self._waiting).replace_schema_metadata(self._schema.metadata)
            self._waiting, self._rows = [], 0
            self._finish_group()
            self._under_way = self._thread.submit(self._writer.write_table, table, row_group_size=len(table))

    def _finish_group(self) -> None:
        """Wait for the group that is being written, if any."""
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            with storage_errors(self.path, resumable=self._resumable):
                under_way.result()

    def __exit__(self, kind: type[BaseException] | None, value: object, traceback: object) -> None:
        try:
            if kind is not None:
                # The disk that ended the work may refuse this too; the error on its way up says so.
                self._thread.shutdown()
                with suppress(OSError):
                    self._writer.close()
                return
            self._flush()
            self._finish_group()
            self._thread.shutdown()
            with storage_errors(self.path, resumable=self._resumable):
                self._writer.close()
                if SEAL_KEY in (self._schema.metadata or {}):
                    seal(self._file.waiting)
                self._file.complete()
        finally:
            self._thread.shutdown()
            self._file.discard()


def sync_folder(folder: Path) -> None:
    """Make renames in `folder` survive a power cut."""
    if sys.platform == "win32":
        return  # Windows has no handle for a folder to be synced
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def file_hash(path: Path) -> str:
    """Return a hash of a file's bytes."""
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def hash_of(value: Any) -> str:
    """Return the hash of a plain value's canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


#: The metadata entry of a Parquet file that carries the hash of its own bytes, and what stands there while it is hashed.
SEAL_KEY, SEAL_MARK, SEAL_BLANK = b"fdsim_checksum", b"blake2b:", b"0" * 32


def seal(path: Path) -> None:
    """Put the hash of a Parquet file's bytes into its footer, where SEAL_MARK and SEAL_BLANK were written for it."""
    place = _seal_place(path)
    if place is None:
        raise ValueError(f"{path} has no place for a checksum")
    digest = _sealed_hash(path, place)
    with open(path, "r+b") as file:
        file.seek(place)
        file.write(digest)


def seal_broken(path: Path) -> bool:
    """Whether a Parquet file carries a checksum and its bytes are not those that were written.

    One without a checksum, as other programs write them, is not broken.
    """
    place = _seal_place(path)
    if place is None:
        return False
    with open(path, "rb") as file:
        file.seek(place)
        return file.read(len(SEAL_BLANK)) != _sealed_hash(path, place)


def seal_of(path: Path) -> str | None:
    """Return the checksum that a Parquet file carries, unchecked; None where there is none, or no file."""
    try:
        place = _seal_place(path)
        if place is None:
            return None
        with open(path, "rb") as file:
            file.seek(place)
            return file.read(len(SEAL_BLANK)).decode("ascii", "replace")
    except OSError:
        return None


def _seal_place(path: Path) -> int | None:
    """Return where in the file its checksum is; the footer is the end of a Parquet file, before its length."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 8))
        length = int.from_bytes(file.read(4), "little")
        if not 0 < length <= size - 8:
            return None  # nobody can read such a file
        footer = file.seek(size - 8 - length)
        found = file.read().rfind(SEAL_MARK)
    place = footer + found + len(SEAL_MARK)
    return place if found >= 0 and place + len(SEAL_BLANK) <= size else None


def _sealed_hash(path: Path, place: int) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        at = 0
        while block := file.read(1 << 20):
            low, high = max(place - at, 0), min(place + len(SEAL_BLANK) - at, len(block))
            if low < high:
                block = block[:low] + SEAL_BLANK[: high - low] + block[high:]
            digest.update(block)
            at += len(block)
    return digest.hexdigest().encode()


def exchange(one: Path, other: Path) -> bool:
    """Swap the names of two folders in one step; return False, having done nothing, where that is not possible."""
    if not sys.platform.startswith("linux"):
        return False
    import ctypes

    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    from_here, both_names_swap = -100, 2
    if call(from_here, os.fsencode(one), from_here, os.fsencode(other), both_names_swap) != 0:
        reason = ctypes.get_errno()
        if reason in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EXDEV):
            return False
        raise OSError(reason, os.strerror(reason), str(other))
    sync_folder(other.parent)
    return True
