"""run.json: what the run is, its progress, and the versions it was made with."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, ValidationError

from fdsim.errors import RunFolderError
from fdsim.files import TEMPORARY, hash_of, write_whole

NAME = "run.json"
RUN_VERSION = 1
#: The status of a run that has ended; the second says that a strategy failed (diverged, say) and the others were finished.
COMPLETE, WITH_FAILURES = "complete", "complete with failures"
ENDED = (COMPLETE, WITH_FAILURES)
_PACKAGES = (
    "torch",
    "torchvision",
    "numpy",
    "scipy",
    "scikit-learn",
    "simpy",
    "pandas",
    "pyarrow",
    "pydantic",
)


def now() -> str:
    """Return the wall-clock time, UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@cache
def versions() -> dict[str, str]:
    """Return the versions a result may depend on, without importing the packages."""
    import fdsim

    found = {"python": platform.python_version(), "fdsim": fdsim.__version__, "platform": platform.platform()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


class StrategyFacts(BaseModel):
    """What run.json says of one strategy."""

    model_config = ConfigDict(strict=True, extra="allow")

    status: Literal["waiting", "running", "stopped", "complete", "failed"] = "waiting"
    message: str | None = None
    rounds_done: NonNegativeInt = 0
    rows: dict[str, NonNegativeInt] = Field(default_factory=dict)
    digests: dict[str, str] | None = None
    models: dict[str, str] = Field(default_factory=dict)
    wall_s: float | None = None


class RunFacts(BaseModel):
    """What run.json must say; more is allowed, as later versions may add to it."""

    model_config = ConfigDict(strict=True, extra="allow")

    run_version: PositiveInt
    name: str
    status: Literal["running", "complete", "complete with failures", "failed", "interrupted"]
    message: str | None = None
    scenario_hash: str
    trace_hash: str | None = None
    trace_key: str | None = None
    trace_seal: str | None = None
    events_hash: str | None = None
    seed: NonNegativeInt
    rounds: PositiveInt
    strategies: dict[str, StrategyFacts] = Field(min_length=1)
    warnings: list[str] = Field(default_factory=list)
    versions: dict[str, str] = Field(default_factory=dict)
    accelerator: str | None = None
    started_at: str = ""
    ended_at: str | None = None
    wall_s: float | None = None
    sessions: list[dict[str, Any]] = Field(default_factory=list)


def _refuse_nonsense(facts: Any, path: Path) -> None:
    try:
        RunFacts.model_validate(facts)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        raise RunFolderError(
            str(path),
            f"the file is damaged: {place}: {first['msg'][0].lower()}{first['msg'][1:]}",
            "restore it from a copy, or run the scenario again with --force",
        ) from None


def checksum_of(facts: Mapping[str, Any]) -> str:
    """Return the hash of all else that run.json says."""
    return hash_of({key: value for key, value in facts.items() if key != "checksum"})


def simulation_hash(facts: Mapping[str, Any]) -> str:
    """Return what tells the simulation that a run learns on from any other: its trace and its event log."""
    return f"{facts.get('trace_hash')}/{facts.get('events_hash')}"


class Manifest(Mapping[str, Any]):
    """run.json as a mapping; `update` replaces the file as a whole."""

    def __init__(self, folder: Path, facts: dict[str, Any]) -> None:
        self.path, self._facts = folder / NAME, facts
        #: Called before anything is written; the run's writer makes sure here that the folder is still its own.
        self.guard: Callable[[], None] = lambda: None

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read a run's manifest, or raise an error that names the file."""
        path = folder / NAME
        if not folder.is_dir():
            raise RunFolderError(
                str(folder), "there is no such folder", "`fdsim list runs` shows the existing runs"
            )
        if not path.is_file():
            raise RunFolderError(
                str(folder), f"not a run: it has no {NAME}", "`fdsim list runs` shows the existing runs"
            )
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, OSError, RecursionError) as error:
            raise RunFolderError(
                str(path), f"the file is damaged ({error})", "run the scenario again with --force"
            ) from None
        if (
            not isinstance(facts, dict)
            or not isinstance(facts.get("run_version"), int)
            or "strategies" not in facts
        ):
            raise RunFolderError(str(path), "not a run's manifest", "run the scenario again with --force")
        if facts["run_version"] > RUN_VERSION:
            raise RunFolderError(
                str(path),
                f"written by a newer fdsim (run version {facts['run_version']})",
                "upgrade fdsim to read it",
            )
        _refuse_nonsense(facts, path)
        return cls(folder, facts)

    def update(self, **facts: Any) -> None:
        """Change facts and write the file."""
        self.guard()
        self._facts = {**self._facts, **facts}
        self._facts["checksum"] = checksum_of(self._facts)
        text = json.dumps(self._facts, indent=2, ensure_ascii=False) + "\n"
        write_whole(self.path, text.encode(), temporary=self.path.parent / TEMPORARY)

    def update_strategy(self, label: str, **facts: Any) -> None:
        """Change facts of one strategy and write the file."""
        strategies = self._facts["strategies"]
        self.update(strategies={**strategies, label: {**strategies.get(label, {}), **facts}})

    def as_dict(self) -> dict[str, Any]:
        """Return a copy of all facts."""
        copied: dict[str, Any] = json.loads(json.dumps(self._facts))
        return copied

    def __getitem__(self, key: str) -> Any:
        return self._facts[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)


def find_run_folders(folder: Path | str) -> list[Path]:
    """Return the run folders in a folder and below it, sorted."""
    found = []
    for place, folders, files in os.walk(folder):
        if NAME in files:
            found.append(Path(place))
            folders.clear()
    return sorted(found)
