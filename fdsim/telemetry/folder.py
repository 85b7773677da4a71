"""A run on disk, as the one process that writes it sees it."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fdsim.errors import RunFolderError, StorageError
from fdsim.files import TEMPORARY, file_hash, seal_of, storage_errors, write_whole
from fdsim.telemetry.checksum import checksummed_parquet
from fdsim.telemetry.config import Telemetry
from fdsim.telemetry.events import EventsWriter
from fdsim.telemetry.lock import LOCK_NAME, RunLock
from fdsim.telemetry.manifest import (
    COMPLETE,
    ENDED,
    RUN_VERSION,
    WITH_FAILURES,
    Manifest,
    now,
    simulation_hash,
    versions,
)
from fdsim.telemetry.manifest import NAME as MANIFEST_NAME
from fdsim.telemetry.parts import part_path
from fdsim.telemetry.scenario_keys import refuse_change, refuse_edits
from fdsim.telemetry.schema import file_schema
from fdsim.telemetry.strategy_log import StrategyLog, partition
from fdsim.telemetry.tensorboard import refuse_missing_tensorboard

if TYPE_CHECKING:
    from fdsim.scenario import Scenario

_log = logging.getLogger("fdsim.telemetry")

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
    "models",
    "tensorboard",
    "report.html",
    TEMPORARY,
)


class RunFolder:
    """The writer's side of a run; made by `create` or `resume`, used as a context manager."""

    def __init__(self, path: Path, lock: RunLock, manifest: Manifest, telemetry: Telemetry) -> None:
        self.path, self.manifest, self._lock = path, manifest, lock
        manifest.guard = lock.check
        #: The log of each strategy, by its label.
        self.logs = {label: StrategyLog(path, label, manifest, telemetry) for label in manifest["strategies"]}
        self._simulation = simulation_hash(manifest) if manifest.get("trace_hash") else None
        self._started_s = time.monotonic()
        self._wall_before_s = float(manifest.get("wall_s") or 0.0)

    @classmethod
    def create(cls, path: Path | str, scenario: Scenario, *, force: bool = False) -> RunFolder:
        """Start a run in a new folder; refuse an existing run, or remove it with `force`."""
        path = Path(path)
        lock = RunLock(path)
        lock.take()
        try:
            _refuse_strangers(path)
            if (path / MANIFEST_NAME).exists() and not force:
                raise _exists(path)
            return cls(path, lock, _start(path, scenario), scenario.telemetry)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def resume(cls, path: Path | str, scenario: Scenario) -> RunFolder:
        """Continue a run where it stopped, or start it when the folder holds none yet."""
        path = Path(path)
        lock = RunLock(path)
        lock.take()
        try:
            _refuse_strangers(path)
            if not (path / MANIFEST_NAME).exists():
                return cls(path, lock, _start(path, scenario), scenario.telemetry)
            manifest = Manifest.read(path)
            refuse_change(path, manifest["scenario_hash"], scenario)
            refuse_edits(path, manifest)
            _clear(path, (TEMPORARY, *(stray.name for stray in path.glob(".trace.parquet.*"))))
            run = cls(path, lock, manifest, scenario.telemetry)
            remade = run._forget_damaged(scenario.telemetry)
            if remade or manifest["status"] not in ENDED:
                manifest.update(status="running", message=None, sessions=[*manifest["sessions"], _session()])
            return run
        except BaseException:
            lock.release()
            raise

    def _forget_damaged(self, telemetry: Telemetry) -> bool:
        """Let what is damaged or lost be made again, and name it; return whether there is anything."""
        found = False
        for label, log in self.logs.items():
            why = log.damage() if log.finished or log.digests_known else None
            lost = log.lost_model()
            if (why or lost) and log.finished:
                _log.warning("%s is learned again: %s", label, why or lost)
                log.forget()
                found = True
            elif lost:
                log.start_over(lost)
        events, known = self.path / "events.parquet", self.manifest.get("events_hash")
        if known is not None and (not events.is_file() or file_hash(events) != known):
            _log.warning("%s is lost or damaged; the fleet is simulated again", events)
            # The event log and the trace come from one simulation.
            _clear(self.path, (self.trace_path.name,))
            found = True
        trace, known = self.trace_path, self.manifest.get("trace_hash")
        if trace.is_file() and known is None:
            # The run was killed before it recorded its trace: nothing says that this is the one that was made.
            _clear(self.path, (trace.name,))
        elif trace.is_file() and file_hash(trace) != known:
            _log.warning("%s is damaged; the trace is made again", trace)
            _clear(self.path, (trace.name,))
            found = True
        return found

    @property
    def trace_path(self) -> Path:
        """Where the run's trace is or will be."""
        return self.path / "trace.parquet"

    def record_trace(self, trace_hash: str, trace_key: str | None = None) -> None:
        """Record which trace the run learns on; made again by another version of Parquet, it may have other bytes."""
        now_known = simulation_hash({**self.manifest, "trace_hash": trace_hash})
        changed = self._simulation is not None and now_known != self._simulation
        finished = [log for log in self.logs.values() if changed and log.finished]
        for log in self.logs.values() if changed else ():
            # What is recorded of a table names its trace; a kill in between must not make it look edited.
            log.record_digests(known=False)
            if not log.finished:
                log.start_over("its trace was made again, and is not the same file")
        self.manifest.update(
            trace_hash=trace_hash,
            trace_seal=seal_of(self.trace_path),
            **({} if trace_key is None else {"trace_key": trace_key}),
        )
        self._simulation = now_known
        for log in finished:
            log.record_digests(known=True)

    def events_writer(self) -> EventsWriter:
        """Open the fleet's event log for writing."""
        return EventsWriter(
            self.path / "events.parquet",
            scenario_hash=self.manifest["scenario_hash"],
            temporary=self.path / TEMPORARY,
            on_complete=lambda found: self.manifest.update(events_hash=found),
        )

    def complete(self, *, wall_s: float | None = None) -> None:
        """Mark the run as complete; `wall_s` is the real time since this process started or resumed it."""
        for log in self.logs.values():
            log.merge()
        failed = [
            label for label, facts in self.manifest["strategies"].items() if facts["status"] == "failed"
        ]
        self._end(WITH_FAILURES if failed else COMPLETE, wall_s=wall_s)
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


def _start(path: Path, scenario: Scenario) -> Manifest:
    """Write what a run has before its first round; a folder is a run from the moment it has a manifest."""
    if scenario.telemetry.tensorboard:
        refuse_missing_tensorboard()
    labels = [strategy.label for strategy in scenario.strategies]
    if len({partition(label) for label in labels}) != len(labels):
        raise RunFolderError(
            "strategies", "two strategies have the same label", "give each a label of its own"
        )
    _clear(path, OWN_NAMES)
    temporary, scenario_hash = path / TEMPORARY, scenario.content_hash
    write_whole(path / "scenario.toml", scenario.as_toml().encode(), temporary=temporary)
    # Empty tables, so that the run can be read from the start.
    for table in ("rounds", "clients") if scenario.telemetry.clients else ("rounds",):
        schema = file_schema(table, scenario_hash=scenario_hash, strategy=labels[0])
        first = part_path(path / table / partition(labels[0]), 0)
        write_whole(first, checksummed_parquet(schema.empty_table()), temporary=temporary)
    manifest = Manifest(path, {})
    manifest.update(
        run_version=RUN_VERSION,
        name=scenario.name,
        status="running",
        message=None,
        scenario_hash=scenario_hash,
        trace_hash=None,
        seed=scenario.seed,
        rounds=scenario.rounds,
        strategies={label: {"status": "waiting", "rounds_done": 0} for label in labels},
        versions=versions(),
        accelerator=None,
        started_at=now(),
        ended_at=None,
        wall_s=0.0,
        sessions=[_session()],
    )
    return manifest


def _session() -> dict[str, Any]:
    return {"started_at": now(), "pid": os.getpid(), "host": socket.gethostname(), "versions": versions()}


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
    if status in ENDED:
        return RunFolderError(
            str(path), "a complete run already exists", "choose another --out, or replace it with --force"
        )
    return RunFolderError(
        str(path),
        f"an unfinished run already exists ({status})",
        "continue it with --resume, or start over with --force",
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
