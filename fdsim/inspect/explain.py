"""`fdsim explain`: what a scenario will do, before it is run."""

from __future__ import annotations

import time
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fdsim.catalogue import OwnCode
from fdsim.prepare import Prepared, doubts, prepare
from fdsim.scenario import Scenario, load_scenario
from fdsim.trace import Cause, Outcome, TraceRound

if TYPE_CHECKING:
    from rich.console import Console


def explain_scenario(
    path: Path, overrides: list[str], rounds: int, console: Console, *, code: OwnCode | None = None
) -> None:
    """Print what a scenario contains, who drops out of its first rounds, and what the run will take."""
    from rich.table import Table

    from fdsim.pipeline import participation_rounds
    from fdsim.telemetry.callback import Callback

    prepared = prepare(load_scenario(path, overrides, code=code))
    began_s = time.perf_counter()
    trace = list(islice(participation_rounds(prepared, Callback()), rounds))
    fleet_s_per_round = (time.perf_counter() - began_s) / len(trace)
    table = Table(show_header=False, title=f"{prepared.scenario.name}: forecast", title_justify="left")
    for name, value in {
        **_task_lines(prepared),
        **_dropout_lines(trace),
        **_deadline_lines(prepared.scenario, trace),
        **_cost_lines(prepared, trace, fleet_s_per_round),
    }.items():
        table.add_row(name, value)
    console.print(table)
    for doubt in doubts(prepared.scenario):
        console.print(f"warning: {doubt}", markup=False, highlight=False, soft_wrap=True)


def _deadline_lines(scenario: Scenario, trace: list[TraceRound]) -> dict[str, str]:
    """Say when the deadline decides nothing: nobody in the forecast was cut off by it."""
    if not scenario.fleet or any((r.cause == Cause.deadline).any() for r in trace):
        return {}
    took_s = [
        float((r.end_s - r.round_start_s)[r.outcome == Outcome.completed].max(initial=0.0)) for r in trace
    ]
    return {
        "deadline": f"{scenario.server.deadline_s:g} s never binds in the first {len(trace)} rounds: the slowest client "
        f"took {max(took_s, default=0.0):.3g} s"
    }


def _task_lines(prepared: Prepared) -> dict[str, str]:
    cost = prepared.workload.cost
    counts = prepared.indices.counts
    clusters = "none" if prepared.true_cluster is None else str(len(np.unique(prepared.true_cluster)))
    return {
        "clients": f"{len(counts)}, {counts.min()} to {counts.max()} samples each, true clusters: {clusters}",
        "net": f"{cost.parameters:,} parameters, {cost.forward_flops / 1e6:.3g} MFLOP per sample forward",
        "a local round": f"{prepared.workload.train_flops.mean() / 1e9:.3g} GFLOP, "
        f"{prepared.workload.bytes_down / 1e6:.3g} MB down, {prepared.workload.bytes_up / 1e6:.3g} MB up",
    }


def _dropout_lines(trace: list[TraceRound]) -> dict[str, str]:
    selected = sum(len(r.selected) for r in trace)
    dropped = sum(len(r.dropped) for r in trace)
    causes: Counter[int] = Counter()
    for r in trace:
        causes.update(r.cause[r.outcome == Outcome.dropped].tolist())
    named = ", ".join(
        f"{Cause(code).name} {n / max(1, dropped):.0%}" for code, n in causes.most_common() if code >= 0
    )
    lengths = [r.round_end_s - r.round_start_s for r in trace]
    return {
        f"dropout, first {len(trace)} rounds": f"{dropped / max(1, selected):.1%}"
        + (f" ({named})" if named else ""),
        "a round lasts": f"{np.mean(lengths):.3g} s simulated, on average",
    }


def _cost_lines(prepared: Prepared, trace: list[TraceRound], fleet_s_per_round: float) -> dict[str, str]:
    from fdsim.learning.cohort.memory import memory_needed
    from fdsim.prepare import make_task
    from fdsim.studies.estimate import learning_s

    scenario = prepared.scenario
    task = make_task(prepared)
    memory = memory_needed(task.trainer, scenario.strategies, scenario.clients)
    seconds = fleet_s_per_round * scenario.rounds + learning_s(task, scenario, trace)
    return {
        "accelerator": str(task.federation.accelerator),
        "memory": f"about {memory / 1e6:,.0f} MB for data, nets and what strategies store",
        "time": f"about {seconds:,.0f} s on this machine for {scenario.rounds} rounds (from one timed round of each kind)",
    }
