"""Show the plan of a study before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fdsim.errors import RunFolderError
from fdsim.studies.estimate import Estimate, disk_bytes, estimate, start_s, trace_bytes
from fdsim.studies.folder import read_study
from fdsim.studies.plan import StudyPlan, Trial
from fdsim.studies.progress import duration
from fdsim.studies.scheduler import in_good_order
from fdsim.studies.worker_use import peak_mb, planned_use
from fdsim.telemetry.manifest import ENDED

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_MOST_ROWS = 30


def print_plan(plan: StudyPlan, folder: Path, console: Console, *, workers: int | None = None) -> None:
    """Print the trials and what they will take; with `workers`, time a few rounds to estimate the duration too."""
    done = _statuses(folder)
    todo = [trial for trial in plan.trials if done.get(trial.scenario.content_hash) not in ENDED]
    estimates: dict[str, Estimate] = {}
    if workers is not None and todo:
        estimates = estimate(todo, threads=plan.study.table.threads_per_run)
    console.print(_table(plan, done, estimates))
    console.print(_summary(plan, todo, estimates, workers), markup=False, highlight=False, soft_wrap=True)


def _statuses(folder: Path) -> dict[str, str]:
    try:
        return {trial["scenario_hash"]: trial["status"] for trial in read_study(folder)["trials"]}
    except RunFolderError:
        return {}


def _table(plan: StudyPlan, done: dict[str, str], estimates: dict[str, Estimate]) -> Table:
    from rich.table import Table
    from rich.text import Text

    # What is the same for all trials is said once, which leaves room for their names.
    sizes = {
        "strategies": [len(trial.scenario.strategies) for trial in plan.trials],
        "clients": [trial.scenario.clients for trial in plan.trials],
        "rounds": [trial.scenario.rounds for trial in plan.trials],
    }
    varied = {heading: counts for heading, counts in sizes.items() if len(set(counts)) > 1}
    same = ", ".join(f"{counts[0]} {heading}" for heading, counts in sizes.items() if heading not in varied)
    table = Table(title=f"study {plan.study.name}" + (f": {same} each" if same else ""), title_justify="left")
    for heading in ("trial", *varied, "trace", "disk"):
        # A name that is cut looks like its neighbours; it goes on in the next line instead.
        table.add_column(
            heading, justify="left" if heading in ("trial", "trace") else "right", overflow="fold"
        )
    if estimates:
        table.add_column("time", justify="right")
    table.add_column("status")
    first_with: dict[str, int] = {}
    for index, trial in enumerate(plan.trials):
        first_with.setdefault(trial.trace_key, index)
        if index >= _MOST_ROWS:
            continue
        known = estimates.get(trial.id)
        owner = first_with[trial.trace_key]
        words = [
            trial.label,
            *(str(counts[index]) for counts in varied.values()),
            trial.trace_key[:8] + ("" if owner == index else " (shared)"),
            size(disk_bytes(trial)),
            *([duration(known.seconds) if known else "–"] if estimates else []),
            done.get(trial.scenario.content_hash, "new"),
        ]
        table.add_row(*(Text(word) for word in words))
    if len(plan.trials) > _MOST_ROWS:
        table.add_row(f"… and {len(plan.trials) - _MOST_ROWS} more")
    return table


def _summary(plan: StudyPlan, todo: list[Trial], estimates: dict[str, Estimate], workers: int | None) -> str:
    runs = sum(len(trial.scenario.strategies) for trial in plan.trials)
    seeds = len({trial.seed for trial in plan.trials})
    leaders = {trial.trace_key: trial for trial in plan.trials}
    disk = sum(disk_bytes(trial) for trial in plan.trials) + sum(
        trace_bytes(trial) for trial in leaders.values()
    )
    words = [
        f"{len(plan.trials)} trials ({seeds} seeds), {runs} strategy runs, {plan.traces} traces",
        f"{len(plan.trials) - len(todo)} complete, {len(todo)} to run",
        f"about {size(disk)} on disk",
    ]
    if estimates and workers:
        use = planned_use(
            [estimates[trial.id].seconds for trial in in_good_order(todo)],
            workers,
            start_s=start_s(),
            peak_mb=peak_mb(),
        )
        words.append(
            f"about {duration(use.whole_s)} with {use.workers} at a time: {use} "
            "(estimates, from one timed round of each kind in this process)"
        )
    return "; ".join(words)


def size(count: float) -> str:
    """Format a number of bytes in a readable unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
