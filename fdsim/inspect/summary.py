"""The closing table of a run: one line per strategy, and why clients dropped out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from rich.table import Table

from fdsim.comparison.measures import Curve, curve_of
from fdsim.telemetry.scenario_keys import as_target

if TYPE_CHECKING:
    from rich.console import Console

#: The default target accuracy: this fraction of the best final accuracy of any strategy.
TARGET_FRAC = 0.95


@dataclass(frozen=True)
class StrategySummary:
    """One strategy's line in the closing table; None where unknown."""

    strategy: str
    rounds: int
    final_accuracy: float | None
    best_accuracy: float | None
    rounds_to_target: int | None
    gap_to_full: float | None
    """Mean over the rounds of Full's accuracy minus this one's."""
    worst_accuracy: float | None
    """The lowest after the first third of the rounds."""
    hours_below_full: float | None
    """Simulated hours with a model below 90 % of Full's accuracy."""
    substitution_error: float | None
    """Mean ‖e_t‖² over the rounds, when the counterfactual was on."""


@dataclass(frozen=True)
class RunSummary:
    """The results of a run."""

    strategies: tuple[StrategySummary, ...]
    target_accuracy: float | None
    dropout_frac: float
    causes: Mapping[str, float]
    """Cause → fraction of all dropouts, most frequent first."""
    empty_rounds: int


def summarise(rounds: pd.DataFrame, trace: pd.DataFrame, target_accuracy: float | None = None) -> RunSummary:
    """Compute the closing table from a run's rounds table and its trace."""
    found = {str(name): curve_of(rows) for name, rows in rounds.groupby("strategy", observed=True)}
    curves = {name: curve for name, curve in found.items() if len(curve.accuracy)}
    full = curves.get("full")
    order = list(dict.fromkeys(rounds["strategy"].astype(str)))
    if target_accuracy is None and curves:
        target_accuracy = TARGET_FRAC * max(float(curve.accuracy[-1]) for curve in curves.values())
    lines = []
    for name in order:
        curve = curves.get(name)
        beside = {} if curve is None or full is None else curve.beside(full)
        errors = rounds.loc[rounds["strategy"].astype(str) == name, "substitution_error"].dropna()
        lines.append(
            StrategySummary(
                strategy=name,
                rounds=int((rounds["strategy"].astype(str) == name).sum()),
                final_accuracy=None if curve is None else float(curve.accuracy[-1]),
                best_accuracy=None if curve is None else float(curve.accuracy.max()),
                rounds_to_target=_rounds_to(curve, target_accuracy),
                gap_to_full=_known(beside.get("gap_to_full")),
                worst_accuracy=None if curve is None else _known(curve.worst_accuracy()),
                hours_below_full=_known(beside.get("hours_below_full")),
                substitution_error=float(errors.mean()) if len(errors) else None,
            )
        )
    selected = trace[trace["outcome"] != "not_selected"]
    dropped = selected[selected["outcome"] == "dropped"]
    causes = dropped["cause"].astype(str).value_counts(normalize=True)
    completed_per_round = (trace["outcome"] == "completed").groupby(trace["round"]).sum()
    return RunSummary(
        strategies=tuple(lines),
        target_accuracy=target_accuracy,
        dropout_frac=len(dropped) / max(1, len(selected)),
        causes={str(cause): float(frac) for cause, frac in causes.items() if frac > 0},
        empty_rounds=int((completed_per_round == 0).sum()),
    )


def _rounds_to(curve: Curve | None, target: float | None) -> int | None:
    if curve is None or target is None:
        return None
    cost = curve.cost("rounds", target)
    return int(cost.value) if cost.reached else None


def _known(value: float | None) -> float | None:
    return None if value is None or np.isnan(value) else value


def summary_table(summary: RunSummary, title: str) -> Table:
    """Lay out a summary for a terminal of 80 columns."""
    from rich import box
    from rich.text import Text

    columns: dict[str, list[str]] = {
        "final\naccuracy": [_number(line.final_accuracy) for line in summary.strategies],
        "best": [_number(line.best_accuracy) for line in summary.strategies],
        "worst\nafter ⅓": [_number(line.worst_accuracy) for line in summary.strategies],
    }
    target = "" if summary.target_accuracy is None else f"\n{summary.target_accuracy:.3f}"
    columns[f"rounds to{target}"] = [
        "never" if line.rounds_to_target is None else str(line.rounds_to_target)
        for line in summary.strategies
    ]
    if any(line.gap_to_full is not None for line in summary.strategies):
        columns["mean gap\nto full"] = [_number(line.gap_to_full) for line in summary.strategies]
        columns["< 90 %\nof full"] = [hours(line.hours_below_full) for line in summary.strategies]
    if any(line.substitution_error is not None for line in summary.strategies):
        columns["mean\n‖e‖²"] = [
            "–" if line.substitution_error is None else f"{line.substitution_error:.3g}"
            for line in summary.strategies
        ]
    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True)
    table.add_column("strategy", overflow="fold")
    for heading in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    for line, *cells in zip(summary.strategies, *columns.values(), strict=True):
        table.add_row(Text(line.strategy), *cells)
    return table


def hours(value: float | None) -> str:
    """Show simulated hours, in days where they are many."""
    if value is None:
        return "–"
    return f"{value / 24:.1f} days" if value >= 100 else f"{value:.1f} h" if value else "0 h"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def dropout_line(summary: RunSummary) -> str:
    """Describe in one line how many clients dropped out and why."""
    causes = ", ".join(f"{cause} {frac:.0%}" for cause, frac in summary.causes.items())
    empty = f"; {summary.empty_rounds} rounds without any active client" if summary.empty_rounds else ""
    return f"dropout {summary.dropout_frac:.1%}" + (f": {causes}" if causes else "") + empty


def print_summary(folder: Path, console: Console) -> None:
    """Print a run's closing table, its causes of dropout, and how to read its tables."""
    import fdsim

    run = fdsim.open_run(folder)
    summary = summarise(run.rounds, run.trace, as_target(run.tables.get("target_accuracy")))
    console.print(summary_table(summary, f"{run.manifest['name']}, seed {run.manifest['seed']}"))
    if any(line.gap_to_full is not None for line in summary.strategies):
        console.print(
            "worst after ⅓: lowest accuracy after a third of the rounds; < 90 % of full: simulated time with such a model",
            markup=False,
            highlight=False,
        )
    for label, message in run.failed.items():
        console.print(f"{label} failed: {message}", markup=False, highlight=False, soft_wrap=True)
    console.print(dropout_line(summary), markup=False, highlight=False, soft_wrap=True)
    console.print(
        f'read it with pandas: pd.read_parquet("{folder}/rounds")',
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
