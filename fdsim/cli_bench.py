"""`fdsim bench …`: how fast this machine runs the parts, as ratios measured in one go."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(help="Measure speeds on this machine.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Measure speeds on this machine."""


@app.command()
def fleet(
    sizes: Annotated[
        list[int] | None, typer.Option("--devices", help="Fleet sizes to try; 1000 and 20000 if not given.")
    ] = None,
) -> None:
    """Events per second of the fleet against a bare SimPy loop with as many processes."""
    from fdsim.devices.bench import show_fleet_speed

    show_fleet_speed(tuple(sizes or (1_000, 20_000)))
