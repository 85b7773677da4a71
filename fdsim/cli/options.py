"""Arguments and options that several verbs share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fdsim.errors import InputError

if TYPE_CHECKING:
    from fdsim.catalogue import OwnCode

ScenarioFile = Annotated[Path, typer.Argument(metavar="SCENARIO", help="A scenario file (TOML).")]
RunDir = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key, as in training.batch_size=20."),
]
NoCode = Annotated[
    bool,
    typer.Option("--no-code", help="Refuse kinds named module:Class, for a scenario that you do not trust."),
]
Device = Annotated[
    str | None,
    typer.Option("--device", help="auto, cpu, cuda, cuda:1 or mps; by default the scenario's."),
]
RayAddress = Annotated[
    str | None,
    typer.Option("--address", help="Ray cluster: auto, HOST:PORT, ray://HOST:PORT, or local."),
]
FleetWorkers = Annotated[
    int | None,
    typer.Option(
        "--workers", min=1, help="Processes that simulate a large fleet; by default as many as cores."
    ),
]


def uses_ray(executor: str, **only_ray: object) -> bool:
    """Return whether an executor is a Ray cluster; refuse one that does not exist, and options it does not take."""
    if executor not in ("local", "ray"):
        raise InputError("--executor", f"no executor called '{executor}'", "there is: local, ray")
    given = [name for name, value in only_ray.items() if value is not None]
    if executor == "local" and given:
        raise InputError(f"--{given[0]}", "is for a Ray cluster", "add --executor ray")
    return executor == "ray"


def refuse_output(
    option: str, path: Path, *, suffix: str = "", sources: Sequence[Path] = (), force: bool = False
) -> None:
    """Refuse to write a file that is read by the same command, exists already, or does not end as it should.

    What is read is never replaced, not by force either: logs of real devices cannot be made again.
    """
    if suffix and path.suffix != suffix:
        raise InputError(option, f"'{path}' does not end in {suffix}", f"call it {path.stem}{suffix}, say")
    if path.is_dir():
        raise InputError(option, f"'{path}' is a folder", "name a file")
    for source in sources:
        # Of two names of one file, links among them; names alone where the file is not there.
        same = path.samefile(source) if path.exists() and source.exists() else path == source
        if same:
            raise InputError(option, f"'{path}' is read by this command", "choose another name")
    if path.exists() and not force:
        raise InputError(option, f"'{path}' already exists", "choose another name, or give --force")


def trust(no_code: bool) -> OwnCode:
    """Return what becomes of a scenario's `module:Class` kinds: imported, unless --no-code is given."""
    from fdsim.catalogue import OwnCode

    return OwnCode("refuse") if no_code else OwnCode()


def say_own_code() -> None:
    """Say which modules of the user's own were imported, and from where."""
    from fdsim.catalogue import own_files

    for name, place in own_files().items():
        typer.echo(f"code of your own: {name} from {place}")
