"""`fdsim verify`: run a scenario again and compare."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fdsim.cli.options import RunDir, say_own_code


def verify(
    run: RunDir,
    quick: Annotated[
        bool, typer.Option("--quick", help="Check all hashes, and run the first rounds only.")
    ] = False,
    tolerance: Annotated[
        float,
        typer.Option("--tolerance", min=0.0, help="Let values differ by this much, relative; 0 is exact."),
    ] = 0.0,
    reference: Annotated[
        bool,
        typer.Option("--reference", help="Compare the trace with the reference model of the fleet instead."),
    ] = False,
    code: Annotated[
        Path | None,
        typer.Option("--code", metavar="FOLDER", help="Import classes that the scenario names from here."),
    ] = None,
) -> None:
    """Run a run's scenario again and compare every table value by value."""
    from fdsim.errors import InputError, RunError, printable
    from fdsim.inspect.verify import verify_run

    if reference:
        if quick or tolerance:
            raise InputError(
                "--reference",
                "compares all rounds within its own tolerances",
                "leave out --quick and --tolerance",
            )
        _verify_reference(run, code)
        return
    verdict = verify_run(run, quick=quick, tolerance=tolerance, code=code)
    say_own_code()
    if verdict.changed:
        typer.echo(printable(f"the environment changed since the run: {', '.join(verdict.changed)}"))
    if verdict.difference is not None:
        raise RunError(f"{run}: not the same. {verdict.difference}")
    exactly = "bit by bit" if not tolerance else f"within {tolerance:g}"
    failed = f"; failed, then as now: {', '.join(verdict.failed)}" if verdict.failed else ""
    told = f"{run}: the same {exactly} over {verdict.rounds} rounds, real time left out{failed}"
    typer.echo(printable(told))


def _verify_reference(run: Path, code: Path | None) -> None:
    from fdsim.errors import RunError
    from fdsim.inspect.reference import verify_reference

    found = verify_reference(run, code=code)
    if found.difference is not None:
        raise RunError(f"{run}: the trace differs from the reference. {found.difference}")
    typer.echo(
        f"{run}: the trace agrees with the reference over {found.rounds} rounds and {found.rows} rows of selected "
        f"clients; times differ by at most {found.largest_time_s:.1g} s"
    )
