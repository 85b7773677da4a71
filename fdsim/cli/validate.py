"""`fdsim validate`: check a scenario file without running it."""

from __future__ import annotations

import typer

from fdsim.cli.options import NoCode, Overrides, ScenarioFile, trust


def validate(scenario: ScenarioFile, sets: Overrides = None, no_code: NoCode = False) -> None:
    """Check a scenario file without running anything."""
    from fdsim.devices.models.replay import repeated_logs
    from fdsim.prepare import prepare
    from fdsim.scenario import load_scenario

    loaded = load_scenario(scenario, sets or [], code=trust(no_code))
    prepare(loaded)
    labels = ", ".join(strategy.label for strategy in loaded.strategies)
    until_s = loaded.server.start_hour * 3600.0 + loaded.rounds * loaded.server.round_interval_s
    parts = [part for group in loaded.fleet for part in (group.connectivity, group.usage, group.battery)]
    for path in sorted({part.path for part in parts if part.kind == "replay" and hasattr(part, "path")}):
        if remark := repeated_logs(path, until_s):
            typer.echo(f"note: {remark}")
    typer.echo(f"{scenario}: valid. {loaded.clients} clients, {loaded.rounds} rounds, strategies: {labels}")
