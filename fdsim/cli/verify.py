"""`fdsim verify`: run a scenario again and compare."""

from __future__ import annotations

from typing import Annotated

import typer

from fdsim.cli.options import RunDir


def verify(
    run: RunDir,
    quick: Annotated[
        bool, typer.Option("--quick", help="Check all hashes, and run the first rounds only.")
    ] = False,
    tolerance: Annotated[
        float,
        typer.Option("--tolerance", min=0.0, help="Let values differ by this much, relative; 0 is exact."),
    ] = 0.0,
) -> None:
    """Run a run's scenario again and compare every table value by value."""
    from fdsim.errors import RunError
    from fdsim.inspect.verify import verify_run

    verdict = verify_run(run, quick=quick, tolerance=tolerance)
    if verdict.changed:
        typer.echo(f"the environment changed since the run: {', '.join(verdict.changed)}")
    if verdict.difference is not None:
        raise RunError(f"{run}: not the same. {verdict.difference}")
    exactly = "bit by bit" if not tolerance else f"within {tolerance:g}"
    typer.echo(f"{run}: the same {exactly} over {verdict.rounds} rounds, real time left out")
