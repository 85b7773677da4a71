"""`fdsim list …`: what there is to choose from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="List kinds, profiles, scenarios, runs and columns.", no_args_is_help=True)


@app.command()
def kinds(
    family: Annotated[str | None, typer.Argument(help="battery, net, strategy, …; all if not given.")] = None,
) -> None:
    """Every built-in kind, by family, with what it does and its keys."""
    from rich.console import Console
    from rich.table import Table

    from fdsim.catalogue import MENU, each_kind, find, nearest
    from fdsim.errors import CatalogueError

    if family is not None and family not in MENU:
        raise CatalogueError("list kinds", f"no family called '{family}'{nearest(family, list(MENU))}")
    table = Table("family", "kind", "what it is", "keys", title="kinds", title_justify="left")
    for name, kind, line in each_kind([family] if family else None):
        keys = [key for key in find(name, kind).model_fields if key not in ("kind", "name")]
        table.add_row(name, kind, line, ", ".join(keys))
    Console().print(table)


@app.command()
def profiles(
    name: Annotated[str | None, typer.Argument(help="One profile, with every value and its source.")] = None,
) -> None:
    """The device library; with a name, that profile's values and where they come from."""
    import json

    from rich.console import Console
    from rich.table import Table

    from fdsim.devices.config.profiles import about, profile, sources

    console = Console()
    if name is None:
        table = Table("profile", "what it is", title="profiles", title_justify="left")
        for label, line in about():
            table.add_row(label, line)
    else:
        known = sources(name)
        table = Table("part", "values", "source", title=name, title_justify="left")
        for part, values in profile(name).items():
            shown = json.dumps(values) if not isinstance(values, dict) else _plain(values)
            table.add_row(part, shown, known.get(part, ""))
    console.print(table)


def _plain(values: dict[str, object]) -> str:
    return "\n".join(f"{key} = {value}" for key, value in values.items())


@app.command()
def scenarios(folder: Annotated[Path, typer.Argument(help="Folder to look in.")] = Path("scenarios")) -> None:
    """Scenario files in a folder, with the question each asks."""
    from rich.console import Console
    from rich.table import Table

    from fdsim.errors import ScenarioError

    if not folder.is_dir():
        raise ScenarioError(
            "list scenarios", f"there is no folder '{folder}'", "name one, or run it where scenarios/ is"
        )
    table = Table("file", "asks", title="scenarios", title_justify="left")
    for path in sorted(folder.rglob("*.toml")):
        head = path.read_text(encoding="utf-8").split("\n", 1)[0]
        table.add_row(str(path), head.lstrip("# ").strip())
    Console().print(table)
