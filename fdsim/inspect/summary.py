"""The closing table of a run: one line per strategy, and why clients dropped out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from rich.table import Table

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
    measured = rounds.dropna(subset=["test_accuracy"])
    curves = {
        str(name): rows.set_index("round")["test_accuracy"]
        for name, rows in measured.groupby("strategy", observed=True)
    }
    order = list(dict.fromkeys(rounds["strategy"].astype(str)))
    if target_accuracy is None and curves:
        target_accuracy = TARGET_FRAC * max(float(curve.iloc[-1]) for curve in curves.values())
    lines = []
    for name in order:
        curve = curves.get(name)
        errors = rounds.loc[rounds["strategy"].astype(str) == name, "substitution_error"].dropna()
        lines.append(
            StrategySummary(
                strategy=name,
                rounds=int((rounds["strategy"].astype(str) == name).sum()),
                final_accuracy=None if curve is None else float(curve.iloc[-1]),
                best_accuracy=None if curve is None else float(curve.max()),
                rounds_to_target=_rounds_to(curve, target_accuracy),
                gap_to_full=_gap(curves.get("full"), curve),
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


def _rounds_to(curve: pd.Series | None, target: float | None) -> int | None:
    if curve is None or target is None:
        return None
    reached = curve.index[curve >= target]
    return int(reached[0]) + 1 if len(reached) else None


def _gap(full: pd.Series | None, curve: pd.Series | None) -> float | None:
    if full is None or curve is None:
        return None
    return float((full - curve).dropna().mean())


def summary_table(summary: RunSummary, title: str) -> Table:
    """Lay out a summary for the terminal."""
    measured_error = any(line.substitution_error is not None for line in summary.strategies)
    table = Table(title=title, title_justify="left")
    table.add_column("strategy")
    target = "" if summary.target_accuracy is None else f"\n{summary.target_accuracy:.3f}"
    for heading in ("final\naccuracy", "best\naccuracy", f"rounds to{target}", "mean gap\nto full"):
        table.add_column(heading, justify="right")
    if measured_error:
        table.add_column("mean ‖e‖²", justify="right")
    from rich.text import Text

    for line in summary.strategies:
        cells = [
            _number(line.final_accuracy),
            _number(line.best_accuracy),
            "never" if line.rounds_to_target is None else str(line.rounds_to_target),
            _number(line.gap_to_full),
        ]
        if measured_error:
            cells.append("–" if line.substitution_error is None else f"{line.substitution_error:.3g}")
        table.add_row(Text(line.strategy), *cells)
    return table


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
    summary = summarise(run.rounds, run.trace, run.tables.get("target_accuracy"))
    console.print(summary_table(summary, f"{run.manifest['name']}, seed {run.manifest['seed']}"))
    for label, message in run.failed.items():
        console.print(f"{label} failed: {message}", markup=False, highlight=False, soft_wrap=True)
    console.print(dropout_line(summary), markup=False, highlight=False, soft_wrap=True)
    console.print(
        f'read it with pandas: pd.read_parquet("{folder}/rounds")',
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
