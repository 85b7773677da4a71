"""A run on disk, as the one process that writes it sees it."""

from __future__ import annotations

import os
import shutil
import socket
import time
from pathlib import Path
from typing import Any, Unpack

from fdsim.errors import RunFolderError, StorageError
from fdsim.files import TEMPORARY, file_hash, storage_errors, write_whole
from fdsim.telemetry.events import EventsWriter
from fdsim.telemetry.facts import RunFacts, refuse_change, settings_in
from fdsim.telemetry.lock import LOCK_NAME, RunLock
from fdsim.telemetry.manifest import NAME as MANIFEST_NAME
from fdsim.telemetry.manifest import RUN_VERSION, Manifest, now, versions
from fdsim.telemetry.settings import Telemetry
from fdsim.telemetry.strategy_log import StrategyLog, partition
from fdsim.telemetry.tensorboard import refuse_missing_tensorboard

#: All that fdsim puts into a run folder; --force removes these and nothing else.
OWN_NAMES = (
    MANIFEST_NAME,
    "scenario.toml",
    "trace.parquet",
    "rounds",
    "clients",
    "similarity",
    "events.parquet",
    "checkpoints",
    "tensorboard",
    "report.html",
    TEMPORARY,
)


class RunFolder:
    """The writer's side of a run; made by `create` or `resume`, used as a context manager."""

    def __init__(self, path: Path, lock: RunLock, manifest: Manifest, settings: Telemetry) -> None:
        self.path, self.manifest, self.settings = path, manifest, settings
        self._lock = lock
        self._started_s = time.monotonic()
        self._wall_before_s = float(manifest.get("wall_s") or 0.0)

    @classmethod
    def create(cls, path: Path | str, *, force: bool = False, **facts: Unpack[RunFacts]) -> RunFolder:
        """Start a run in a new folder; an existing run is refused, or with `force` removed."""
        path, lock = _locked(path)
        try:
            _refuse_strangers(path)
            if (path / MANIFEST_NAME).exists() and not force:
                raise _exists(path)
            return cls._start(path, lock, facts)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def resume(cls, path: Path | str, **facts: Unpack[RunFacts]) -> RunFolder:
        """Go on with a run where it stopped, or starts it when the folder holds none yet."""
        path, lock = _locked(path)
        try:
            _refuse_strangers(path)
            if not (path / MANIFEST_NAME).exists():
                return cls._start(path, lock, facts)
            manifest = Manifest.read(path)
            refuse_change(path, manifest, facts)
            _clear(path, (TEMPORARY,))
            for stray in path.glob(".trace.parquet.*.tmp"):
                stray.unlink()
            if manifest["status"] != "complete":
                manifest.update(status="running", message=None, sessions=[*manifest["sessions"], _session()])
            return cls(path, lock, manifest, settings_in(facts["scenario_toml"]))
        except BaseException:
            lock.release()
            raise

    @classmethod
    def _start(cls, path: Path, lock: RunLock, facts: RunFacts) -> RunFolder:
        settings = settings_in(facts["scenario_toml"])
        if settings.tensorboard:
            refuse_missing_tensorboard()
        names = [partition(label) for label in facts["strategies"]]
        if len(set(names)) != len(names):
            raise RunFolderError(
                "strategies", "two strategies have the same label", "give each a label of its own"
            )
        _clear(path, OWN_NAMES)
        write_whole(path / "scenario.toml", facts["scenario_toml"].encode(), temporary=path / TEMPORARY)
        manifest = Manifest(path, {"scenario_hash": facts["scenario_hash"], "strategies": {}})
        StrategyLog(path, facts["strategies"][0], manifest, settings).prepare()
        # Last, because a folder is a run from the moment it has a manifest.
        manifest.update(
            run_version=RUN_VERSION,
            name=facts["name"],
            status="running",
            message=None,
            scenario_hash=facts["scenario_hash"],
            trace_hash=None,
            seed=facts["seed"],
            rounds=facts["rounds"],
            strategies={label: {"status": "waiting", "rounds_done": 0} for label in facts["strategies"]},
            versions=versions(),
            accelerator=None,
            started_at=now(),
            ended_at=None,
            wall_s=0.0,
            sessions=[_session()],
        )
        return cls(path, lock, manifest, settings)

    @property
    def trace_path(self) -> Path:
        """Where the run's trace is or will be."""
        return self.path / "trace.parquet"

    @property
    def trace_damaged(self) -> bool:
        """Whether the trace on disk is no longer the one this run began with; then it is made again."""
        known = self.manifest.get("trace_hash")
        return known is not None and self.trace_path.is_file() and file_hash(self.trace_path) != known

    @property
    def is_complete(self) -> bool:
        """Whether there is nothing left to do."""
        return bool(self.manifest["status"] == "complete")

    def strategy(self, label: str) -> StrategyLog:
        """Open the log of one strategy."""
        return StrategyLog(self.path, label, self.manifest, self.settings)

    def events_writer(self) -> EventsWriter:
        """Open the fleet's event log for writing."""
        return EventsWriter(
            self.path / "events.parquet",
            scenario_hash=self.manifest["scenario_hash"],
            temporary=self.path / TEMPORARY,
            on_complete=lambda found: self.manifest.update(events_hash=found),
        )

    def complete(self, *, wall_s: float | None = None) -> None:
        """Mark the run as complete; `wall_s` is the real time since this process took the run up."""
        for label in self.manifest["strategies"]:
            self.strategy(label).merge()
        self._end("complete", wall_s=wall_s)
        _clear(self.path, (TEMPORARY, "checkpoints"))

    def _end(self, status: str, *, wall_s: float | None = None, message: str | None = None) -> None:
        wall_s = self._wall_before_s + (time.monotonic() - self._started_s if wall_s is None else wall_s)
        self.manifest.update(status=status, message=message, ended_at=now(), wall_s=round(wall_s, 3))

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: object
    ) -> None:
        try:
            if self.manifest["status"] == "running":
                self._record_end(kind, value)
        finally:
            self._lock.release()

    def _record_end(self, kind: type[BaseException] | None, value: BaseException | None) -> None:
        stopped = kind is None or issubclass(kind, KeyboardInterrupt | SystemExit | GeneratorExit)
        try:
            if stopped:
                self._end("interrupted", message="stopped before the end")
            else:
                self._end("failed", message=f"{kind.__name__}: {value}" if kind else None)
        except StorageError:
            # The disk that ended the run may refuse this too; the error on its way up says so.
            if value is None:
                raise


def _session() -> dict[str, Any]:
    return {"started_at": now(), "pid": os.getpid(), "host": socket.gethostname(), "versions": versions()}


def _locked(path: Path | str) -> tuple[Path, RunLock]:
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise RunFolderError(str(path), "is a file, not a folder", "choose another folder with --out")
    with storage_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    lock = RunLock(path)
    lock.take()
    return path, lock


def _refuse_strangers(path: Path) -> None:
    """Refuse a folder that holds something else, which must be neither overwritten nor mixed with a run."""
    if (path / MANIFEST_NAME).exists():
        return
    known = {*OWN_NAMES, LOCK_NAME}
    strangers = sorted(n for n in os.listdir(path) if n not in known and not n.startswith(".trace.parquet."))
    if strangers:
        (path / LOCK_NAME).unlink()
        raise RunFolderError(
            str(path),
            f"the folder is not a run and is not empty ('{strangers[0]}')",
            "choose another with --out",
        )


def _exists(path: Path) -> RunFolderError:
    try:
        status = Manifest.read(path)["status"]
    except RunFolderError:
        status = "damaged"
    if status == "complete":
        return RunFolderError(
            str(path), "a complete run is there", "choose another --out, or replace it with --force"
        )
    return RunFolderError(
        str(path), f"an unfinished run is there ({status})", "go on with --resume, or start anew with --force"
    )


def _clear(path: Path, names: tuple[str, ...]) -> None:
    """Remove some of what fdsim wrote; the manifest first, so that half a run is never taken for one."""
    for name in names:
        target = path / name
        with storage_errors(target):
            if target.is_dir() and not target.is_symlink():
                shutil.rmtree(target)
            else:
                target.unlink(missing_ok=True)
