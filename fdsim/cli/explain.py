"""`fdsim explain`: forecast what a scenario will do."""

from __future__ import annotations

from typing import Annotated

import typer

from fdsim.cli.options import NoCode, Overrides, ScenarioFile, trust


def explain(
    scenario: ScenarioFile,
    sets: Overrides = None,
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, help="Rounds of the fleet to simulate for the forecast.")
    ] = 20,
    no_code: NoCode = False,
) -> None:
    """Forecast a scenario's dropout, duration and memory before any training."""
    from fdsim.cli.console import PlainConsole
    from fdsim.inspect.explain import explain_scenario

    explain_scenario(scenario, sets or [], rounds, PlainConsole(), code=trust(no_code))
