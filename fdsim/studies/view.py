"""What a person watches while a study goes on: bars on a terminal, one plain line per cell elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from fdsim.studies.plan import Cell, Plan

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID


class StudyView(Protocol):
    """The moments of a study that someone may want to see."""

    def begins(self, plan: Plan, done: Sequence[Cell]) -> None: ...
    def cell_starts(self, cell: Cell, where: str) -> None: ...
    def cell_advances(self, cell: Cell, frac: float) -> None: ...
    def cell_ends(self, cell: Cell, wall_s: float) -> None: ...
    def cell_fails(self, cell: Cell, message: str, *, again: bool) -> None: ...
    def ticks(self) -> None: ...
    def ends(self, failed: Sequence[tuple[Cell, str]]) -> None: ...


class SilentStudy:
    """Shows nothing."""

    def begins(self, plan: Plan, done: Sequence[Cell]) -> None:
        return

    def cell_starts(self, cell: Cell, where: str) -> None:
        return

    def cell_advances(self, cell: Cell, frac: float) -> None:
        return

    def cell_ends(self, cell: Cell, wall_s: float) -> None:
        return

    def cell_fails(self, cell: Cell, message: str, *, again: bool) -> None:
        return

    def ticks(self) -> None:
        return

    def ends(self, failed: Sequence[tuple[Cell, str]]) -> None:
        return


class Forecast:
    """Time left, from the work done so far: cells differ in size, so work is counted and not cells."""

    def __init__(self, plan: Plan, done: Sequence[Cell]) -> None:
        self._began_s = time.monotonic()
        self._left = {cell.id: cell.work for cell in plan.cells}
        for cell in done:
            del self._left[cell.id]
        self._whole = sum(self._left.values())
        self._part: dict[str, float] = {}

    def advance(self, cell: Cell, frac: float) -> None:
        """Take a cell's share done."""
        self._part[cell.id] = frac * cell.work

    def end(self, cell: Cell) -> None:
        """Take a cell as done, or given up."""
        self._left.pop(cell.id, None)
        self._part.pop(cell.id, None)

    @property
    def seconds_left(self) -> float | None:
        """Real seconds to the end; None before anything is done."""
        left = sum(self._left.values()) - sum(self._part.values())
        done = self._whole - left
        return None if done <= 0 else (time.monotonic() - self._began_s) * left / done


class StudyTerminal:
    """One display for the whole study: cells done, running and failed, and the time left."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._console, self._live = console, console.is_terminal
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=28),
            TextColumn("{task.fields[note]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            disable=not self._live,
        )
        self._tasks: dict[str, TaskID] = {}
        self._total = self._done = self._failed = self._retried = 0
        self._forecast: Forecast | None = None
        self._whole: TaskID | None = None

    def __enter__(self) -> StudyTerminal:
        self._bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bars.stop()

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def begins(self, plan: Plan, done: Sequence[Cell]) -> None:
        """Open the display."""
        self._total, self._done = len(plan.cells), len(done)
        self._forecast = Forecast(plan, done)
        if done:
            self._say(f"{len(done)} of {self._total} cells are complete already")
        if self._live:
            self._whole = self._bars.add_task("study", total=self._total, completed=self._done, note="")

    def cell_starts(self, cell: Cell, where: str) -> None:
        """Open a running cell's bar."""
        if self._live and cell.id not in self._tasks:
            self._tasks[cell.id] = self._bars.add_task(f"  {cell.label}", total=1.0, note="")

    def cell_advances(self, cell: Cell, frac: float) -> None:
        """Move a running cell's bar."""
        if self._forecast is not None:
            self._forecast.advance(cell, frac)
        if cell.id in self._tasks:
            self._bars.update(self._tasks[cell.id], completed=frac)

    def cell_ends(self, cell: Cell, wall_s: float) -> None:
        """Count a cell as done."""
        self._done += 1
        self._drop(cell, count=True)
        if not self._live:
            self._say(
                f"[{self._done}/{self._total}] {cell.label}: complete ({wall_s:.1f} s){self._time_left()}"
            )

    def cell_fails(self, cell: Cell, message: str, *, again: bool) -> None:
        """Say what went wrong and what happens next."""
        self._drop(cell, count=not again)
        self._failed += not again
        self._say(f"{cell.label}: {'failed, is tried again' if again else 'failed for good'}: {message}")

    def _drop(self, cell: Cell, *, count: bool) -> None:
        if count and self._forecast is not None:
            self._forecast.end(cell)
        if cell.id in self._tasks:
            self._bars.remove_task(self._tasks.pop(cell.id))

    def ticks(self) -> None:
        """Bring the whole study's bar up to date."""
        if self._whole is not None:
            failed = f", {self._failed} failed" if self._failed else ""
            note = f"{self._done}/{self._total} done, {len(self._tasks)} running{failed}{self._time_left()}"
            self._bars.update(self._whole, completed=self._done + self._failed, note=note)

    def _time_left(self) -> str:
        left = None if self._forecast is None else self._forecast.seconds_left
        return (
            "" if not left or self._done + self._failed >= self._total else f", about {duration(left)} left"
        )

    def ends(self, failed: Sequence[tuple[Cell, str]]) -> None:
        """Close the display with what could not be done."""
        self.ticks()
        for cell, message in failed:
            self._say(f"failed: {cell.label} ({cell.id}): {message}")


def duration(seconds: float) -> str:
    """Say a real time in the units people use."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"
