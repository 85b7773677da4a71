"""Files that are whole or absent: written beside, synced, renamed."""

from __future__ import annotations

import errno
import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fdsim.errors import StorageError

#: Inside a run folder: unfinished files live here, out of every table's way, so that readers never meet one.
TEMPORARY = ".tmp"


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn what the operating system says about `path` into one sentence with a remedy."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{path}: {_reason(error)}. What was written before is safe; {_remedy(error)}"
        ) from error


def _reason(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full"
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return "the folder cannot be written to"
    return f"the disk refused ({error.strerror or error})"


def _remedy(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some space, then continue with --resume"
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return "make it writable or choose another folder with --out"
    return "see to the disk, then continue with --resume"


def sync_folder(folder: Path) -> None:
    """Make renames in `folder` survive a power cut."""
    if sys.platform == "win32":
        return  # Windows has no handle for a folder to be synced
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_whole(path: Path, content: bytes, *, temporary: Path) -> None:
    """Write a file that appears under its name only when complete; an older one stays until that moment."""
    with storage_errors(path):
        temporary.mkdir(parents=True, exist_ok=True)
        waiting = temporary / f"{path.parent.name}.{path.name}"
        try:
            with open(waiting, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            put_in_place(waiting, path)
        finally:
            waiting.unlink(missing_ok=True)


def put_in_place(waiting: Path, path: Path) -> None:
    """Give a complete, synced file its name."""
    os.replace(waiting, path)
    sync_folder(path.parent)


@contextmanager
def complete_or_absent(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; what is written there takes its name unless the block fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not the process id alone: machines that share a folder may have the same.
    temporary = path.with_name(f".{path.name}.{os.urandom(6).hex()}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        # Renaming one link of a file over another link of it does nothing, and leaves the temporary name behind.
        temporary.unlink(missing_ok=True)


def file_hash(path: Path) -> str:
    """Return a hash of a file's bytes, as fdsim.trace's content_hash."""
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def exchange(one: Path, other: Path) -> bool:
    """Let two folders change names in one step; return False, having done nothing, where that cannot be done."""
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
