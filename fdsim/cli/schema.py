"""`fdsim schema`: the JSON Schema of scenario files."""

from __future__ import annotations

import typer


def schema() -> None:
    """Print the JSON Schema of scenario files, for editors that complete and check TOML."""
    import json

    from fdsim.scenario.schema import scenario_schema

    typer.echo(json.dumps(scenario_schema(), indent=2))
