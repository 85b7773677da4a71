"""`fdsim validate`: check a scenario file without running it."""

from __future__ import annotations

import typer

from fdsim.cli.options import NoCode, Overrides, ScenarioFile, trust


def validate(scenario: ScenarioFile, sets: Overrides = None, no_code: NoCode = False) -> None:
    """Check a scenario file without running anything."""
    from fdsim.prepare import prepare
    from fdsim.scenario import load_scenario

    loaded = load_scenario(scenario, sets or [], code=trust(no_code))
    prepare(loaded)
    labels = ", ".join(strategy.label for strategy in loaded.strategies)
    typer.echo(f"{scenario}: valid. {loaded.clients} clients, {loaded.rounds} rounds, strategies: {labels}")
