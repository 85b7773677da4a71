"""`fdsim schema`: the JSON Schema of scenario and study files."""

from __future__ import annotations

from typing import Annotated

import typer

from fdsim.errors import InputError


def schema(
    of: Annotated[str, typer.Argument(metavar="scenario|study", help="Which kind of file.")] = "scenario",
) -> None:
    """Print the JSON Schema of scenario or study files, for editors that complete and check TOML."""
    typer.echo(schema_text(of), nl=False)


def schema_text(of: str) -> str:
    """Return a schema as a JSON file."""
    import json

    from fdsim.catalogue import nearest

    if of == "scenario":
        from fdsim.scenario.schema import scenario_schema as made
    elif of == "study":
        from fdsim.studies.study_schema import study_schema as made
    else:
        raise InputError("schema", f"no schema of '{of}'" + nearest(of, ["scenario", "study"]))
    return json.dumps(made(), indent=2, ensure_ascii=False) + "\n"
