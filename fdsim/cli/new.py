"""`fdsim new`: a commented scenario and a device model of one's own to start from."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from fdsim.errors import InputError

_FILES = {"scenario.toml": "scenario.toml", "my_models.py": "my_models.py.txt"}
#: What the first line of the scenario names, for editors that complete and check TOML.
_SCHEMA = "scenario.schema.json"


def new(folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to create.")]) -> None:
    """Create a folder with a commented scenario and a device model of your own to start from."""
    from fdsim.cli.schema import schema_text

    for name in (*_FILES, _SCHEMA):
        if (folder / name).exists():
            raise InputError(
                str(folder / name), "already exists", "choose another folder; nothing was written"
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, template in _FILES.items():
            text = resources.files("fdsim.cli").joinpath("templates", template).read_text(encoding="utf-8")
            (folder / name).write_text(text, encoding="utf-8")
        (folder / _SCHEMA).write_text(schema_text("scenario"), encoding="utf-8")
    except OSError as error:
        raise InputError(
            str(folder), f"cannot be written ({error.strerror})", "choose another folder"
        ) from None
    typer.echo(f"created {', '.join(_FILES)} in {folder}. Next: cd {folder} && fdsim run scenario.toml")
