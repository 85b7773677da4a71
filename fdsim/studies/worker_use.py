"""How well a study's workers are used: until the first trial is under way, idle time, memory; planned and measured."""

from __future__ import annotations

import heapq
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from fdsim.studies.executors.base import Advanced, Ended, Event


@dataclass(frozen=True)
class WorkerUse:
    """What became, or will become, of the workers' time and memory."""

    workers: int
    whole_s: float
    """From the start to the end of the last trial."""
    first_s: float
    """Until the first trial is under way: processes and torch have started, and its fleet is simulated."""
    idle_frac: float
    """The part of the workers' time in which no trial ran, starting up included."""
    peak_mb: float | None
    """The most memory of a worker; None where it is not known."""

    def __str__(self) -> str:
        memory = "" if self.peak_mb is None else f", {self.peak_mb:,.0f} MB a worker"
        return (
            f"the first trial under way after {self.first_s:.1f} s, workers idle {self.idle_frac:.0%}{memory}"
        )


class WorkerClock:
    """Takes the events of a study, and tells how its workers were used."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._first_s: float | None = None
        self._worked_s = 0.0
        self._peak_mb: float | None = None

    def take(self, event: Event) -> None:
        """Note what an event says of the workers."""
        if isinstance(event, Advanced | Ended) and self._first_s is None:
            self._first_s = time.monotonic() - self._began_s
        if isinstance(event, Ended):
            self._worked_s += event.wall_s
            if event.peak_mb is not None:
                self._peak_mb = max(self._peak_mb or 0.0, event.peak_mb)

    def use(self, workers: int) -> WorkerUse | None:
        """Return how so many workers were used so far; None if no trial ran."""
        if self._first_s is None:
            return None
        whole_s = time.monotonic() - self._began_s
        idle_frac = max(0.0, 1.0 - self._worked_s / (workers * whole_s))
        return WorkerUse(workers, whole_s, self._first_s, idle_frac, self._peak_mb)


def planned_use(
    trials_s: Sequence[float], workers: int, *, start_s: float, peak_mb: float | None
) -> WorkerUse:
    """Plan trials of known length, in their order, each given to the worker that is free first.

    Every worker needs `start_s` before its first trial.
    """
    workers = min(workers, len(trials_s))
    free_s = [start_s] * workers
    for trial_s in trials_s:
        heapq.heapreplace(free_s, free_s[0] + trial_s)
    whole_s = max(free_s)
    return WorkerUse(workers, whole_s, start_s, 1.0 - sum(trials_s) / (workers * whole_s), peak_mb)


def peak_mb() -> float | None:
    """Return the most memory that this process has used so far, MB; None where the system does not tell."""
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Bytes on macOS, kibibytes elsewhere.
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6
