"""One writer per run folder.

The operating system holds the lock for as long as the process lives, so a dead process never leaves one
behind, whatever killed it; the file's text only names the holder.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

from fdsim.errors import RunFolderError, StorageError
from fdsim.files import storage_errors

LOCK_NAME = ".lock"
#: A reader that checks whether a run is alive holds the lock for a moment; a writer waits this long for it.
_PATIENCE_S = 0.5


class RunLock:
    """The lock of a run folder, held from `take` to `release`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / LOCK_NAME
        self._handle: int | None = None

    def take(self) -> None:
        """Create the folder if needed and take its lock, or raise an error that names the process holding it."""
        folder = self.path.parent
        if folder.exists() and not folder.is_dir():
            raise RunFolderError(str(folder), "is a file, not a folder", "choose another folder with --out")
        with storage_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with storage_errors(self.path):
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        give_up = time.monotonic() + _PATIENCE_S
        while not _try_lock(handle, shared=False):
            if time.monotonic() > give_up:
                holder = _holder(handle)
                os.close(handle)
                raise RunFolderError(
                    str(folder),
                    f"process {holder.get('pid', '?')} on {holder.get('host', '?')} is writing this run",
                    "wait for it to end, or choose another folder with --out",
                )
            time.sleep(0.02)
        with storage_errors(self.path):
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)
        self._handle = handle

    def check(self) -> None:
        """Raise an error when the folder was removed or replaced under the run, and its lock with it."""
        if self._handle is None:
            return
        try:
            there = os.path.samestat(os.fstat(self._handle), os.stat(self.path))
        except OSError:
            there = False
        if not there:
            raise StorageError(
                f"{self.path.parent}: the run folder was removed or replaced while the run was going on. "
                "Nothing more is written to it; run the scenario again"
            )

    def release(self) -> None:
        """Release the lock."""
        if self._handle is not None:
            os.close(self._handle)  # closing unlocks
            self._handle = None


def writer_of(folder: Path) -> int | None:
    """Return the pid of the process that is writing a run, or None when there is none."""
    try:
        handle = os.open(folder / LOCK_NAME, os.O_RDONLY)
    except OSError:
        return None
    try:
        return None if _try_lock(handle, shared=True) else int(_holder(handle).get("pid", 0))
    finally:
        os.close(handle)


def _holder(handle: int) -> dict[str, Any]:
    try:
        found = json.loads(os.pread(handle, 4096, 0))
    except (ValueError, OSError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


if sys.platform == "win32":
    import msvcrt

    def _try_lock(handle: int, *, shared: bool) -> bool:
        try:
            os.lseek(handle, 1 << 20, os.SEEK_SET)  # beyond the text, which others must be able to read
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(handle: int, *, shared: bool) -> bool:
        try:
            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
