"""The plan of a study, shown before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fdsim.errors import RunFolderError
from fdsim.studies.estimate import Estimate, disk_bytes, estimate, trace_bytes
from fdsim.studies.folder import read_study
from fdsim.studies.plan import Cell, Plan
from fdsim.studies.view import duration

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_MOST_ROWS = 30


def print_plan(plan: Plan, folder: Path, console: Console, *, workers: int | None = None) -> None:
    """Print the cells and what they will take; with `workers`, tries a few rounds to tell the time as well."""
    done = _statuses(folder)
    todo = [cell for cell in plan.cells if done.get(cell.scenario.content_hash) != "complete"]
    estimates: dict[str, Estimate] = {}
    if workers is not None and todo:
        estimates = estimate(todo, threads=plan.study.table.threads_per_run)
    console.print(_table(plan, done, estimates))
    console.print(_summary(plan, todo, estimates, workers), markup=False, highlight=False, soft_wrap=True)


def _statuses(folder: Path) -> dict[str, str]:
    try:
        return {cell["scenario_hash"]: cell["status"] for cell in read_study(folder)["cells"]}
    except RunFolderError:
        return {}


def _table(plan: Plan, done: dict[str, str], estimates: dict[str, Estimate]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"study {plan.study.name}", title_justify="left")
    for heading in ("cell", "strategies", "clients", "rounds", "trace", "disk"):
        table.add_column(heading, justify="left" if heading in ("cell", "trace") else "right")
    if estimates:
        table.add_column("time", justify="right")
    table.add_column("status")
    first_with: dict[str, int] = {}
    for index, cell in enumerate(plan.cells):
        first_with.setdefault(cell.trace_key, index)
        if index >= _MOST_ROWS:
            continue
        known = estimates.get(cell.id)
        owner = first_with[cell.trace_key]
        words = [
            cell.label,
            str(len(cell.scenario.strategies)),
            str(cell.scenario.clients),
            str(cell.scenario.rounds),
            cell.trace_key[:8] + ("" if owner == index else " (shared)"),
            size(disk_bytes(cell)),
            *([duration(known.seconds) if known else "–"] if estimates else []),
            done.get(cell.scenario.content_hash, "new"),
        ]
        table.add_row(*(Text(word) for word in words))
    if len(plan.cells) > _MOST_ROWS:
        table.add_row(f"… and {len(plan.cells) - _MOST_ROWS} more")
    return table


def _summary(plan: Plan, todo: list[Cell], estimates: dict[str, Estimate], workers: int | None) -> str:
    runs = sum(len(cell.scenario.strategies) for cell in plan.cells)
    seeds = len({cell.seed for cell in plan.cells})
    leaders = {cell.trace_key: cell for cell in plan.cells}
    disk = sum(disk_bytes(cell) for cell in plan.cells) + sum(trace_bytes(cell) for cell in leaders.values())
    words = [
        f"{len(plan.cells)} cells ({seeds} seeds), {runs} strategy runs, {len(leaders)} traces",
        f"{len(plan.cells) - len(todo)} complete, {len(todo)} to run",
        f"about {size(disk)} on disk",
    ]
    if estimates and workers:
        seconds = sum(known.seconds for known in estimates.values())
        longest = max(known.seconds for known in estimates.values())
        words.append(
            f"about {duration(max(longest, seconds / workers))} with {workers} at a time (a round of each kind was tried)"
        )
    return "; ".join(words)


def size(count: float) -> str:
    """Say a number of bytes in the units people use."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
