"""One simulated trace for all cells that share it, found by the hash of what the trace depends on."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fdsim.errors import TraceError
from fdsim.trace import open_trace


@dataclass(frozen=True)
class TraceCache:
    """A folder of `<trace key>.parquet`, and of `<trace key>.events.parquet` where the fleet's events were kept."""

    folder: Path

    def fetch(self, key: str, wanted: dict[str, Path], make: Callable[[], None]) -> None:
        """Brings the files of a trace to where they are `wanted`, by suffix ("" and ".events"), making them once.

        `make` writes the wanted files in place. While one process makes a trace, others that want it wait: a lock
        of the operating system, which a killed process cannot leave behind.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._alone(key):
            kept = {suffix: self.folder / f"{key}{suffix}.parquet" for suffix in wanted}
            if all(path.exists() for path in kept.values()) and _is_trace_of(kept[""], key):
                for suffix, path in wanted.items():
                    _share(kept[suffix], path)
                return
            make()
            for suffix, path in wanted.items():
                _share(path, kept[suffix])

    @contextmanager
    def _alone(self, key: str) -> Iterator[None]:
        with open(self.folder / f".{key}.lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _is_trace_of(path: Path, key: str) -> bool:
    try:
        return open_trace(path).made_by == key
    except TraceError:
        # A damaged file in the cache is made again rather than believed.
        return False


def _share(source: Path, target: Path) -> None:
    """Links a finished file under a second name, or copies it where links are not to be had."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        os.link(source, temporary)
    except OSError:
        shutil.copyfile(source, temporary)
    temporary.replace(target)
    # Renaming one link of a file over another link of it does nothing, and would leave the temporary name behind.
    temporary.unlink(missing_ok=True)
