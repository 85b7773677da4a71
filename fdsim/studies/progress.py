"""Show the progress of a study: bars on a terminal, one plain line per trial elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from fdsim.progress import shortened
from fdsim.studies.plan import StudyPlan, Trial
from fdsim.studies.worker_use import WorkerUse

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID


class StudyProgress(Protocol):
    """The events of a study that can be shown."""

    def begins(self, plan: StudyPlan, done: Sequence[Trial]) -> None: ...
    def trial_starts(self, trial: Trial, where: str) -> None: ...
    def trial_advances(self, trial: Trial, frac: float) -> None: ...
    def trial_ends(self, trial: Trial, wall_s: float, failed: Sequence[str] = ()) -> None: ...
    def trial_fails(self, trial: Trial, message: str, *, again: bool) -> None: ...
    def ticks(self) -> None: ...
    def ends(self, failed: Sequence[tuple[Trial, str]], use: WorkerUse | None) -> None: ...


class SilentStudy:
    """Shows nothing."""

    def begins(self, plan: StudyPlan, done: Sequence[Trial]) -> None:
        return

    def trial_starts(self, trial: Trial, where: str) -> None:
        return

    def trial_advances(self, trial: Trial, frac: float) -> None:
        return

    def trial_ends(self, trial: Trial, wall_s: float, failed: Sequence[str] = ()) -> None:
        return

    def trial_fails(self, trial: Trial, message: str, *, again: bool) -> None:
        return

    def ticks(self) -> None:
        return

    def ends(self, failed: Sequence[tuple[Trial, str]], use: WorkerUse | None) -> None:
        return


class RemainingTime:
    """Estimates the time left from the work done so far; trials differ in size, so work is counted, not trials."""

    def __init__(self, plan: StudyPlan, done: Sequence[Trial]) -> None:
        self._began_s = time.monotonic()
        self._left = {trial.id: trial.work for trial in plan.trials}
        for trial in done:
            del self._left[trial.id]
        self._whole = sum(self._left.values())
        self._part: dict[str, float] = {}

    def advance(self, trial: Trial, frac: float) -> None:
        """Record the completed fraction of a trial."""
        self._part[trial.id] = frac * trial.work

    def end(self, trial: Trial) -> None:
        """Record that a trial is complete or given up."""
        self._left.pop(trial.id, None)
        self._part.pop(trial.id, None)

    @property
    def seconds_left(self) -> float | None:
        """Wall-clock seconds to the end; None before anything is done."""
        left = sum(self._left.values()) - sum(self._part.values())
        done = self._whole - left
        return None if done <= 0 else (time.monotonic() - self._began_s) * left / done


class StudyTerminal:
    """Shows the whole study: trials done, running and failed, and the time left."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.table import Column

        self._console, self._live = console, console.is_terminal
        self._bars = Progress(
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
            BarColumn(bar_width=28 if console.width >= 130 else 12, table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[note]}", markup=False),
            TimeElapsedColumn(table_column=Column(no_wrap=True)),
            console=console,
            disable=not self._live,
        )
        self._tasks: dict[str, TaskID] = {}
        self._names: dict[str, str] = {}
        self._total = self._done = self._failed = 0
        self._remaining: RemainingTime | None = None
        self._whole: TaskID | None = None

    def __enter__(self) -> StudyTerminal:
        self._bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bars.stop()

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def begins(self, plan: StudyPlan, done: Sequence[Trial]) -> None:
        """Open the display."""
        self._total, self._done = len(plan.trials), len(done)
        self._remaining = RemainingTime(plan, done)
        if done:
            self._say(f"{len(done)} of {self._total} trials already complete")
        if self._live:
            # Beside a name stand a bar of 12, a note of up to 32 and the clock.
            room = max(16, self._console.width - 58)
            names = told_apart([trial.label for trial in plan.trials], room)
            self._names = {trial.id: name for trial, name in zip(plan.trials, names, strict=True)}
            self._whole = self._bars.add_task("study", total=self._total, completed=self._done, note="")

    def trial_starts(self, trial: Trial, where: str) -> None:
        """Open a running trial's bar."""
        if self._live and trial.id not in self._tasks:
            self._tasks[trial.id] = self._bars.add_task(f"  {self._names[trial.id]}", total=1.0, note="")

    def trial_advances(self, trial: Trial, frac: float) -> None:
        """Move a running trial's bar."""
        if self._remaining is not None:
            self._remaining.advance(trial, frac)
        if trial.id in self._tasks:
            self._bars.update(self._tasks[trial.id], completed=frac)

    def trial_ends(self, trial: Trial, wall_s: float, failed: Sequence[str] = ()) -> None:
        """Count a trial as done, and name the strategies that failed in it."""
        self._done += 1
        self._drop(trial, count=True)
        how = f"complete, but failed: {', '.join(failed)}" if failed else "complete"
        if failed or not self._live:
            self._say(
                f"[{self._done}/{self._total}] {trial.label}: {how} ({wall_s:.1f} s){self._time_left()}"
            )

    def trial_fails(self, trial: Trial, message: str, *, again: bool) -> None:
        """Print what went wrong and what happens next."""
        self._drop(trial, count=not again)
        self._failed += not again
        self._say(f"{trial.label}: {'failed, will be retried' if again else 'failed permanently'}: {message}")

    def _drop(self, trial: Trial, *, count: bool) -> None:
        if count and self._remaining is not None:
            self._remaining.end(trial)
        if trial.id in self._tasks:
            self._bars.remove_task(self._tasks.pop(trial.id))

    def ticks(self) -> None:
        """Update the study's own bar."""
        if self._whole is not None:
            failed = f", {self._failed} failed" if self._failed else ""
            done = " done" if self._console.width >= 110 else ""
            note = f"{self._done}/{self._total}{done}, {len(self._tasks)} running{failed}{self._time_left()}"
            self._bars.update(self._whole, completed=self._done + self._failed, note=note)

    def _time_left(self) -> str:
        left = None if self._remaining is None else self._remaining.seconds_left
        return (
            "" if not left or self._done + self._failed >= self._total else f", about {duration(left)} left"
        )

    def ends(self, failed: Sequence[tuple[Trial, str]], use: WorkerUse | None) -> None:
        """Close the display with how the workers were used, and the trials that failed."""
        self.ticks()
        if use is not None:
            self._say(f"{use.workers} at a time: {duration(use.whole_s)}, {use}")
        for trial, message in failed:
            self._say(f"failed: {trial.label} ({trial.id}): {message}")


def told_apart(labels: Sequence[str], most: int) -> list[str]:
    """Shorten labels to at most `most` characters each such that no two become alike.

    Words that all have in common are left out first, then the middle is cut, then a number says which it is.
    """
    if max(map(len, labels), default=0) <= most:
        return list(labels)
    words = [label.split() for label in labels]
    common = set.intersection(*map(set, words)) if len(labels) > 1 else set()
    bare = [" ".join(word for word in mine if word not in common) for mine in words]
    short = [shortened(label, most) for label in bare]
    if len(set(short)) == len(set(labels)):
        return short
    width = len(str(len(labels)))
    return [f"{i:>{width}} {shortened(label, most - width - 1)}" for i, label in enumerate(bare, 1)]


def duration(seconds: float) -> str:
    """Format a duration in a readable unit."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"
