"""The progress of a study in a notebook: a bar for the whole, and one for each trial that is running."""

from __future__ import annotations

from collections.abc import Sequence

from fdsim.progress import NotebookTable
from fdsim.studies.plan import StudyPlan, Trial
from fdsim.studies.progress import RemainingTime, duration
from fdsim.studies.worker_use import WorkerUse


class StudyNotebook:
    """Shows trials done, running and failed, and the time left."""

    def __init__(self) -> None:
        self._table = NotebookTable()
        self._running: dict[str, tuple[Trial, float]] = {}
        self._failed: dict[str, str] = {}
        self._incomplete: dict[str, str] = {}
        self._use: WorkerUse | None = None
        self._total = self._done = 0
        self._remaining: RemainingTime | None = None

    def begins(self, plan: StudyPlan, done: Sequence[Trial]) -> None:
        """Open the study's bar."""
        self._total, self._done = len(plan.trials), len(done)
        self._remaining = RemainingTime(plan, done)
        self._draw(now=True)

    def trial_starts(self, trial: Trial, where: str) -> None:
        """Open a trial's bar."""
        self._running[trial.id] = trial, 0.0
        self._draw()

    def trial_advances(self, trial: Trial, frac: float) -> None:
        """Move a trial's bar."""
        if self._remaining is not None:
            self._remaining.advance(trial, frac)
        self._running[trial.id] = trial, frac
        self._draw()

    def trial_ends(self, trial: Trial, wall_s: float, failed: Sequence[str] = ()) -> None:
        """Count a trial as done, and keep the strategies that failed in it."""
        self._done += 1
        if failed:
            self._incomplete[trial.label] = f"complete, but failed: {', '.join(failed)}"
        self._close(trial)

    def trial_fails(self, trial: Trial, message: str, *, again: bool) -> None:
        """Keep why a trial was given up; one that is retried starts anew."""
        if again:
            self._running.pop(trial.id, None)
            return
        self._failed[trial.label] = message
        self._close(trial)

    def _close(self, trial: Trial) -> None:
        self._running.pop(trial.id, None)
        if self._remaining is not None:
            self._remaining.end(trial)
        self._draw(now=True)

    def ticks(self) -> None:
        """Draw again, for the time left."""
        self._draw()

    def ends(self, failed: Sequence[tuple[Trial, str]], use: WorkerUse | None) -> None:
        """Leave the study's bar, how the workers were used, and the trials that failed."""
        self._running.clear()
        self._use = use
        self._draw(now=True)

    def _draw(self, *, now: bool = False) -> None:
        ended = self._done + len(self._failed)
        left = None if self._remaining is None else self._remaining.seconds_left
        note = f"{self._done}/{self._total} trials" + (
            f", {len(self._failed)} failed" if self._failed else ""
        )
        note += f", about {duration(left)} left" if left and ended < self._total else ""
        note += "" if self._use is None else f", {self._use}"
        rows = [("study", float(ended), float(self._total), note)]
        rows += [(trial.label, frac, 1.0, "") for trial, frac in self._running.values()]
        rows += [(label, 1.0, 1.0, note) for label, note in self._incomplete.items()]
        rows += [(label, 1.0, 1.0, f"failed: {message}") for label, message in self._failed.items()]
        self._table.draw(rows, now=now)
