"""What an executor is: a place with room for some trials at a time, that says what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from fdsim.studies.trial import TrialJob


@dataclass(frozen=True)
class Started:
    """A trial has begun, at a place worth naming when it goes wrong."""

    trial: str
    where: str


@dataclass(frozen=True)
class Advanced:
    """A share of a trial is done."""

    trial: str
    frac: float


@dataclass(frozen=True)
class Ended:
    """A trial is complete."""

    trial: str
    wall_s: float


@dataclass(frozen=True)
class Failed:
    """A trial did not end well; `again` says whether another try could."""

    trial: str
    message: str
    again: bool = True


Event = Started | Advanced | Ended | Failed


class Executor(Protocol):
    """Runs trials somewhere. Used as a context manager; leaving it stops whatever still runs."""

    @property
    def slots(self) -> int:
        """How many trials can run at the same time, now."""

    def submit(self, job: TrialJob) -> None:
        """Take a trial; never more than `slots` at a time are given."""

    def wait(self, timeout_s: float) -> Sequence[Event]:
        """Return what happened, after `timeout_s` at the latest."""

    def __enter__(self) -> Executor: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None: ...
