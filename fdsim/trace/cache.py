"""Keep one simulated trace for all trials that share it, by the hash of what the trace depends on."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fdsim.errors import TraceError
from fdsim.files import UnfinishedFile, storage_errors
from fdsim.trace import open_trace


@dataclass(frozen=True)
class TraceCache:
    """A folder of `<trace key>.parquet` files."""

    folder: Path

    def path_of(self, key: str) -> Path:
        """Return the path of a key's trace, made or not."""
        return self.folder / f"{key}.parquet"

    def fetch(self, key: str, target: Path, make: Callable[[Path], object]) -> None:
        """Put the trace of `key` at `target`; `make` simulates it if it is not there yet.

        While one process makes a trace, others that want it wait: on a lock of the operating system, which a killed
        process cannot leave behind.
        """
        with storage_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        kept = self.path_of(key)
        with self._alone(key):
            if not _is_trace_of(kept, key):
                make(kept)
        with storage_errors(target):
            link_or_copy(kept, target)

    @contextmanager
    def _alone(self, key: str) -> Iterator[None]:
        with open(self.folder / f".{key}.lock", "w", encoding="utf-8") as lock:
            # Without such locks a trace may be made twice; both are the same file, and the second replaces the first.
            if sys.platform != "win32":
                import fcntl

                fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _is_trace_of(path: Path, key: str) -> bool:
    try:
        return open_trace(path).made_by == key
    except TraceError:
        # Absent or damaged: it is made again.
        return False


def link_or_copy(source: Path, target: Path) -> None:
    """Give a finished file a second name, or copy it where the file system has no links."""
    with UnfinishedFile(target) as waiting:
        try:
            os.link(source, waiting)
        except OSError:
            shutil.copyfile(source, waiting)
