"""`fdsim trace …`: make, import and look at traces without any learning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Make and look at dropout traces.", no_args_is_help=True)


@app.command()
def make(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO", help="A scenario file (TOML).")],
    out: Annotated[Path, typer.Option("--out", metavar="F.parquet", help="Where to write the trace.")],
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key.")
    ] = None,
) -> None:
    """Simulate the fleet only and write its trace."""
    from rich.console import Console

    from fdsim.prepare import prepare
    from fdsim.run import make_trace
    from fdsim.scenario import load_scenario
    from fdsim.view import Terminal

    loaded = load_scenario(scenario, sets or [])
    with Terminal(Console(), loaded.rounds) as view:
        trace = make_trace(prepare(loaded), out, view)
    typer.echo(f"{out}: {trace.clients} clients, {trace.rounds} rounds, hash {trace.content_hash}")
