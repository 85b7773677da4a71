"""A study on disk: the resolved file, the plan with the status of each trial, shared traces, and the trials' run folders.

studies/<name>/
  study.toml      resolved: base included, seeds listed
  study.json      every trial: folder, seed, swept settings, case, status
  traces/         <trace key>.parquet, shared by trials
  trials/<id>/     ordinary run folders
  logs/           output of the worker processes
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fdsim
from fdsim.errors import RunFolderError, StorageError
from fdsim.files import TEMPORARY, write_whole
from fdsim.studies.plan import StudyPlan, Trial
from fdsim.telemetry.lock import LOCK_NAME, RunLock
from fdsim.telemetry.manifest import COMPLETE, ENDED, WITH_FAILURES, Manifest, now

NAME = "study.json"
STUDY_VERSION = 1
_OWN_NAMES = {NAME, "study.toml", "traces", "trials", "logs", "report.html", TEMPORARY, LOCK_NAME}


class StudyFolder:
    """The driver's side of a study; used as a context manager, which holds the folder's lock."""

    def __init__(self, path: Path, plan: StudyPlan) -> None:
        self.path, self.plan = path, plan
        self._lock = RunLock(path)
        self._trials: dict[str, dict[str, Any]] = {}
        self._facts: dict[str, Any] = {}

    def __enter__(self) -> StudyFolder:
        self._make()
        self._lock.take()
        try:
            self._adopt()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, traceback: object) -> None:
        try:
            if self._facts["status"] == "running":
                self.close("interrupted" if kind is None or not issubclass(kind, Exception) else "failed")
        finally:
            self._lock.release()

    def _make(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            strangers = sorted(p.name for p in self.path.iterdir() if p.name not in _OWN_NAMES)
            if strangers and not (self.path / NAME).exists():
                problem = f"the folder is not a study and is not empty ('{strangers[0]}')"
                raise RunFolderError(str(self.path), problem, "choose another with --out")
            write_whole(
                self.path / "study.toml", self.plan.resolved_toml().encode(), temporary=self.path / TEMPORARY
            )
        except (OSError, StorageError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise RunFolderError(
                str(self.path), f"results cannot be written there ({reason})", "choose another with --out"
            ) from None

    def _adopt(self) -> None:
        """Adopt the plan and keep what earlier sessions have completed of it."""
        before = (
            {trial["id"]: trial for trial in read_study(self.path)["trials"]}
            if (self.path / NAME).exists()
            else {}
        )
        by_hash = {trial["scenario_hash"]: trial for trial in before.values()}
        for trial in self.plan.trials:
            earlier = by_hash.get(trial.scenario.content_hash, {})
            # Work is known by its hash: renaming a sweep or reordering it must not lose what is done.
            entry = _entry(trial, str(earlier.get("folder", f"trials/{trial.id}")))
            entry |= {key: earlier[key] for key in ("attempts", "wall_s") if key in earlier}
            if self._is_complete(entry):
                entry |= self._outcome(entry)
            self._trials[trial.id] = entry
        planned = {entry["folder"] for entry in self._trials.values()}
        self._facts = {
            "study_version": STUDY_VERSION,
            "name": self.plan.study.name,
            "status": "running",
            "fdsim": fdsim.__version__,
            "updated_at": now(),
            "swept": list(self.plan.study.table.swept),
            "retired": sorted(
                {*self._retired_before(before), *(c["folder"] for c in before.values())} - planned
            ),
        }
        self._write()

    def _retired_before(self, before: Mapping[str, Any]) -> list[str]:
        return list(read_study(self.path).get("retired", [])) if before else []

    def _is_complete(self, entry: dict[str, Any]) -> bool:
        """Tell whether a trial is complete by its own manifest: study.json may be stale if the driver was killed."""
        try:
            manifest = Manifest.read(self.path / entry["folder"])
        except RunFolderError:
            return False
        return bool(manifest["scenario_hash"] == entry["scenario_hash"] and manifest.get("status") in ENDED)

    def _outcome(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Return how a trial that reached its end did so: which of its strategies failed on the way, and why."""
        try:
            strategies = Manifest.read(self.path / entry["folder"])["strategies"]
        except RunFolderError:
            strategies = {}  # its results are kept elsewhere
        failed = {k: v.get("message") or "" for k, v in strategies.items() if v.get("status") == "failed"}
        return {"status": WITH_FAILURES if failed else COMPLETE, "failed_strategies": failed}

    def end(self, trial: Trial, wall_s: float) -> dict[str, str]:
        """Record that a trial reached its end; return the strategies that failed in it, each with the reason."""
        outcome = self._outcome(self._trials[trial.id])
        self.update(trial, wall_s=round(wall_s, 3), error=None, **outcome)
        failed: dict[str, str] = outcome["failed_strategies"]
        return failed

    def failed_strategies(self, trial: Trial) -> dict[str, str]:
        """Return the strategies that failed in a trial that reached its end, each with the reason."""
        return dict(self._trials[trial.id].get("failed_strategies") or {})

    @property
    def traces(self) -> Path:
        """The folder of shared traces."""
        return self.path / "traces"

    def run_folder(self, trial: Trial) -> Path:
        """Return the run folder of a trial."""
        return self.path / str(self._trials[trial.id]["folder"])

    def status(self, trial: Trial) -> str:
        """Return a trial's status: waiting, running, complete, complete with failures, or failed."""
        return str(self._trials[trial.id]["status"])

    def attempts(self, trial: Trial) -> int:
        """Return how often the trial was started, in all sessions."""
        return int(self._trials[trial.id]["attempts"])

    def update(self, trial: Trial, **facts: Any) -> None:
        """Record facts of a trial and write study.json."""
        self._trials[trial.id] |= facts
        self._write()

    def close(self, status: str) -> None:
        """Record how the study ended."""
        self._facts["status"] = status
        for entry in self._trials.values():
            if entry["status"] == "running":
                entry["status"] = "waiting"
        self._write()

    def _write(self) -> None:
        self._facts["updated_at"] = now()
        text = json.dumps(
            {**self._facts, "trials": list(self._trials.values())}, indent=1, ensure_ascii=False
        )
        write_whole(self.path / NAME, text.encode(), temporary=self.path / TEMPORARY)


def _entry(trial: Trial, folder: str) -> dict[str, Any]:
    return {
        "id": trial.id,
        "folder": folder,
        "case": trial.case,
        "seed": trial.seed,
        "settings": trial.settings,
        "strategies": [strategy.label for strategy in trial.scenario.strategies],
        "rounds": trial.scenario.rounds,
        "scenario_hash": trial.scenario.content_hash,
        "trace_key": trial.trace_key,
        "status": "waiting",
        "attempts": 0,
        "wall_s": None,
        "error": None,
    }


def read_study(path: Path) -> dict[str, Any]:
    """Read study.json; errors name the file."""
    place = path / NAME
    try:
        about = json.loads(place.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunFolderError(
            str(path), f"not a study: it has no {NAME}", "`fdsim study FILE` makes one"
        ) from None
    except (ValueError, OSError, RecursionError) as error:
        raise RunFolderError(
            str(place), f"the file is damaged ({error})", "run the study again; its trials are kept"
        ) from None
    if not isinstance(about, dict) or not isinstance(about.get("trials"), list):
        raise RunFolderError(
            str(place), "it does not list a study's trials", "run the study again; its trials are kept"
        )
    if about.get("study_version", 0) > STUDY_VERSION:
        raise RunFolderError(str(place), "written by a newer fdsim", "upgrade fdsim to read it")
    return about
