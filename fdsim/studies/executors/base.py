"""The executor protocol: runs a number of trials at a time and reports events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from fdsim.studies.trial import TrialJob


@dataclass(frozen=True)
class Started:
    """A trial has started, at a place worth naming if it fails."""

    trial: str
    where: str


@dataclass(frozen=True)
class Advanced:
    """A fraction of a trial is done."""

    trial: str
    frac: float


@dataclass(frozen=True)
class Ended:
    """A trial is complete."""

    trial: str
    wall_s: float
    peak_mb: float | None = None
    """The most memory that its process has used so far, where that is known."""


@dataclass(frozen=True)
class Failed:
    """A trial failed; `again` tells whether a retry could succeed."""

    trial: str
    message: str
    again: bool = True


Event = Started | Advanced | Ended | Failed


class Executor(Protocol):
    """Runs trials. Used as a context manager; leaving it stops those still running."""

    @property
    def slots(self) -> int:
        """How many trials can currently run at the same time."""

    def submit(self, job: TrialJob) -> None:
        """Start a trial; callers keep to `slots` at a time."""

    def wait(self, timeout_s: float) -> Sequence[Event]:
        """Return the events so far, after `timeout_s` at the latest."""

    def __enter__(self) -> Executor: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None: ...
