"""Conducting a study: give cells to an executor, try failed ones again, write down what became of each."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fdsim.studies.executors.base import Advanced, Ended, Event, Executor, Failed, Started
from fdsim.studies.folder import StudyFolder
from fdsim.studies.plan import Cell, Plan
from fdsim.studies.trial import CellJob
from fdsim.studies.view import StudyView

_TICK_S = 0.5


@dataclass(frozen=True)
class StudyOutcome:
    """How a study ended."""

    folder: Path
    complete: tuple[Cell, ...]
    failed: tuple[tuple[Cell, str], ...]
    """Cells that kept failing, each with what its last attempt said."""


def conduct(
    folder: StudyFolder, executor: Executor, view: StudyView, *, device: str | None = None
) -> StudyOutcome:
    """Run every cell that is not complete yet; the folder is open, and so is the executor."""
    plan = folder.plan
    done = [cell for cell in plan.cells if folder.status(cell) == "complete"]
    todo = deque(in_good_order(cell for cell in plan.cells if folder.status(cell) != "complete"))
    work = _Work({cell.id: cell for cell in plan.cells}, plan.study.table.retries)
    view.begins(plan, done)
    while todo or work.running:
        while todo and len(work.running) < executor.slots:
            cell = todo.popleft()
            work.begin(cell)
            executor.submit(job_of(cell, folder, device=device))
        for event in executor.wait(_TICK_S):
            todo.extend(_take(event, work, folder, view))
        view.ticks()
    outcome = StudyOutcome(
        folder.path,
        tuple(cell for cell in plan.cells if folder.status(cell) == "complete"),
        tuple((cell, message) for cell, message in work.failed),
    )
    folder.close("failed" if outcome.failed else "complete")
    view.ends(outcome.failed)
    return outcome


class _Work:
    """What is going on: running cells, their tries in this session, and what failed for good."""

    def __init__(self, cells: dict[str, Cell], retries: int) -> None:
        self.cells, self.retries = cells, retries
        self.running: dict[str, float] = {}
        self.tries: dict[str, int] = {}
        self.failed: list[tuple[Cell, str]] = []

    def begin(self, cell: Cell) -> None:
        self.running[cell.id] = time.monotonic()
        self.tries[cell.id] = self.tries.get(cell.id, 0) + 1


def _take(event: Event, work: _Work, folder: StudyFolder, view: StudyView) -> Iterable[Cell]:
    """Take one event in, and return cells to try again."""
    cell = work.cells[event.cell]
    if isinstance(event, Started):
        folder.update(cell, status="running", attempts=folder.attempts(cell) + 1, where=event.where)
        view.cell_starts(cell, event.where)
    elif isinstance(event, Advanced):
        view.cell_advances(cell, event.frac)
    elif isinstance(event, Ended):
        del work.running[cell.id]
        folder.update(cell, status="complete", wall_s=round(event.wall_s, 3), error=None)
        view.cell_ends(cell, event.wall_s)
    elif isinstance(event, Failed):
        del work.running[cell.id]
        if event.again and work.tries[cell.id] <= work.retries:
            folder.update(cell, status="waiting", error=event.message)
            view.cell_fails(cell, event.message, again=True)
            return [cell]
        folder.update(cell, status="failed", error=event.message)
        work.failed.append((cell, event.message))
        view.cell_fails(cell, event.message, again=False)
    return []


def in_good_order(cells: Iterable[Cell]) -> list[Cell]:
    """Sort cells: one of each trace first, so that others find it made, and long ones before short ones."""
    seen: set[str] = set()
    keyed = []
    for index, cell in enumerate(cells):
        keyed.append((cell.trace_key in seen, -cell.work, index, cell))
        seen.add(cell.trace_key)
    return [cell for *_, cell in sorted(keyed, key=lambda item: item[:3])]


def job_of(cell: Cell, folder: StudyFolder, *, device: str | None = None) -> CellJob:
    """Say what a worker needs to know of a cell."""
    study = folder.plan.study
    return CellJob(
        cell=cell.id,
        scenario=cell.scenario.as_tables(),
        folder=str(folder.run_folder(cell).resolve()),
        traces=str(folder.traces.resolve()),
        trace_key=cell.trace_key,
        import_from=tuple(str(path) for path in (*study.import_from, Path.cwd())),
        threads=study.table.threads_per_run,
        device=device,
    )


def plan_summary(plan: Plan) -> str:
    """Say in one line how much a plan is."""
    runs = sum(len(cell.scenario.strategies) for cell in plan.cells)
    seeds = len({cell.seed for cell in plan.cells})
    return f"{len(plan.cells)} cells ({seeds} seeds), {runs} strategy runs, {plan.traces} traces to simulate"
