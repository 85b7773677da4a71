"""`fdsim theory`: the paper's bounds beside what a run measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fdsim.cli.options import RunDir


def theory(
    run: RunDir,
    strategy: Annotated[
        str | None, typer.Option(help="Strategy whose R to estimate from; by default the first that has one.")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Also write the table by round to this file.")] = None,
) -> None:
    """Show the paper's constants and bounds, estimated from a run, beside what was measured."""
    from rich.table import Table

    from fdsim.cli.console import PlainConsole
    from fdsim.inspect.theory import theory_of
    from fdsim.telemetry.doubts import blaming_edits
    from fdsim.telemetry.reader import open_run

    with blaming_edits(run):
        panel = theory_of(open_run(run), strategy)
    known = panel.constants
    console = PlainConsole()
    console.print(f"estimated from R of {panel.strategy}; friends: {panel.friends}")
    console.print(
        f"K {known.clients}  T {known.rounds}  σ_P² {known.sigma_p2:.4g}  σ_F² {known.sigma_f2:.4g}  β {known.beta:.3g}  "
        f"δ_min {known.delta_min:.3g}  δ_f {known.delta_f:.3g}  B_max {known.b_max}"
    )
    errors = Table(title="Σ‖e_t‖² measured, and its bounds", title_justify="left")
    for name in (
        "strategy",
        "measured",
        "Ψ̄ (dropout)",
        "Ψ* (true friends)",
        "fdms (theorem)",
        "as predicted",
    ):
        errors.add_column(name, justify="left" if name == "strategy" else "right")
    measures = panel.errors[["error_sum", "psi_bar", "psi_star", "psi_fdms", "psi_predicted"]].to_numpy(
        dtype=float
    )
    for label, numbers in zip(panel.errors["strategy"], measures, strict=True):
        errors.add_row(str(label), *map(_number, numbers))
    console.print(errors)
    rounds = Table(title="by round", title_justify="left")
    for name in ("round", "missing", "misselected", "bound", "Θ_t"):
        rounds.add_column(name, justify="right")
    step = max(1, len(panel.rounds) // 10)
    columns = ["round", "missing_frac", "misselection", "misselection_bound", "theta"]
    for numbers in panel.rounds[columns].to_numpy(dtype=float)[::step]:
        rounds.add_row(str(int(numbers[0])), *map(_number, numbers[1:]))
    console.print(rounds)
    if csv is not None:
        panel.rounds.to_csv(csv, index=False)
        console.print(f"written: {csv}")


def _number(value: float) -> str:
    return "–" if value != value else "∞" if value == float("inf") else f"{value:.3g}"
