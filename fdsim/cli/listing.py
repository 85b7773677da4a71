"""`fdsim list …`: the kinds, keys, profiles, scenarios, runs and columns there are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="List kinds, keys, profiles, scenarios, runs and columns.", no_args_is_help=True)


@app.command()
def kinds(
    family: Annotated[str | None, typer.Argument(help="battery, net, strategy, …; by default all.")] = None,
) -> None:
    """List the built-in kinds by family, with what each does and its keys."""
    from rich.table import Table

    from fdsim.catalogue import MENU, each_kind, find, nearest
    from fdsim.cli.console import PlainConsole
    from fdsim.errors import CatalogueError

    if family is not None and family not in MENU:
        raise CatalogueError("list kinds", f"no family called '{family}'{nearest(family, list(MENU))}")
    table = Table("family", "kind", "what it is", "keys", title="kinds", title_justify="left")
    for name, kind, line in each_kind([family] if family else None):
        keys = [key for key in find(name, kind).model_fields if key not in ("kind", "name")]
        table.add_row(name, kind, line, ", ".join(keys))
    PlainConsole().print(table)


@app.command()
def keys(
    table: Annotated[
        str | None,
        typer.Argument(metavar="TABLE", help="server, fleet, telemetry, battery, study, …; by default all."),
    ] = None,
) -> None:
    """List the keys of a scenario: type, default, unit and meaning, by table and by kind."""
    import shutil
    import textwrap

    from fdsim.catalogue import nearest
    from fdsim.errors import ScenarioError
    from fdsim.scenario.reference import key_tables, tables_of
    from fdsim.studies.study_file import StudyTable

    known = [*key_tables(), *tables_of(StudyTable, "study")]
    shown = [t for t in known if table is None or _is_or_within(t.name, table)]
    if not shown:
        names = list(dict.fromkeys(t.name.split(" ")[0] for t in known if t.name))
        raise ScenarioError("list keys", f"no table called '{table}'" + nearest(str(table), names))
    width = max(40, shutil.get_terminal_size((100, 24)).columns)

    lines: list[str] = []

    def say(text: str, indent: int) -> None:
        if indent + len(text) <= width:
            lines.append(" " * indent + text)
            return
        # Whole words on as many lines as they need: a reference that is cut is none.
        filled = textwrap.fill(
            text,
            width,
            initial_indent=" " * indent,
            subsequent_indent=" " * (indent + 2),
            break_long_words=False,
            break_on_hyphens=False,
        )
        lines.append(filled)

    for each in shown:
        say(f"[{each.name or 'at the top'}]  {each.about}", 0)
        for key in each.keys:
            default = f" = {key.default}" if key.default else " (required)" if key.required else ""
            unit = f", {key.unit}" if key.unit else ""
            say(f"{key.name}{default}: {key.type}{unit}", 2)
            say(key.meaning, 6)
        lines.append("")
    typer.echo("\n".join(lines))


def _is_or_within(name: str, wanted: str) -> bool:
    """Whether a table is the wanted one, one inside it, or a kind of the wanted family."""
    return (
        name == wanted or name.startswith((f"{wanted}.", f"{wanted} ")) or (not name and wanted == "scenario")
    )


@app.command()
def profiles(
    name: Annotated[str | None, typer.Argument(help="One profile, with every value and its source.")] = None,
) -> None:
    """List the device profiles; with a name, show that profile's values and their sources."""
    import json

    from rich.markup import escape
    from rich.table import Table

    from fdsim.cli.console import PlainConsole
    from fdsim.devices.config.profiles import MARKS, about, profile, sources

    console = PlainConsole()
    if name is None:
        table = Table("profile", "what it is", title="profiles", title_justify="left")
        for label, line in about():
            table.add_row(label, line)
    else:
        known = sources(name)
        table = Table("part", "values", "source", title=name, title_justify="left")
        for part, values in profile(name).items():
            shown = json.dumps(values) if not isinstance(values, dict) else _plain(values)
            inner = [f"{key}: {text}" for key, text in known.items() if key.startswith(f"{part}.")]
            table.add_row(part, escape(shown), escape("\n".join([known.get(part, ""), *inner])))
    console.print(table)
    if name is not None:
        marks = "  ".join(f"{mark} {meaning}" for mark, meaning in MARKS.items())
        console.print(marks, markup=False, highlight=False)


def _plain(values: dict[str, object]) -> str:
    return "\n".join(f"{key} = {value}" for key, value in values.items())


@app.command()
def scenarios(folder: Annotated[Path, typer.Argument(help="Folder to search.")] = Path("scenarios")) -> None:
    """List the scenario files of a folder with the question each asks."""
    from rich.table import Table

    from fdsim.cli.console import PlainConsole
    from fdsim.errors import ScenarioError

    if not folder.is_dir():
        raise ScenarioError(
            "list scenarios",
            f"there is no folder '{folder}'",
            "name a folder, or run the command where scenarios/ is",
        )
    table = Table("file", "asks", title="scenarios", title_justify="left")
    for path in sorted(folder.rglob("*.toml")):
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
        # The first line may name the schema, for editors.
        head = lines[1] if lines[0].startswith("#:") and len(lines) > 1 else lines[0]
        table.add_row(str(path), head.lstrip("# ").strip())
    PlainConsole().print(table)


@app.command()
def runs(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder to search, at any depth.")] = Path(
        "runs"
    ),
) -> None:
    """List the runs in a folder: status, progress, scenario, seed and size."""
    from rich.table import Table
    from rich.text import Text

    from fdsim.cli.console import PlainConsole
    from fdsim.cli.show import rounds_done
    from fdsim.errors import RunFolderError
    from fdsim.telemetry.manifest import find_run_folders
    from fdsim.telemetry.reader import Run

    if not folder.is_dir():
        raise RunFolderError(str(folder), "there is no such folder", "`fdsim run SCENARIO` makes runs/<name>")
    table = Table(title=f"runs in {folder}", title_justify="left")
    # A path that is cut looks like its neighbours; it goes on in the next line instead.
    table.add_column("run", overflow="fold")
    table.add_column("status", no_wrap=True)
    table.add_column("scenario", overflow="fold")
    for heading in ("seed", "rounds", "size"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("started")
    for path in find_run_folders(folder):
        size = _size(path)
        try:
            run = Run(path)
            facts = run.manifest
            cells = [
                f"{run.status}, edited" if run.doubts() else run.status,
                facts["name"],
                str(facts["seed"]),
                rounds_done(run),
                size,
                facts["started_at"][:16].replace("T", " "),
            ]
        except RunFolderError as error:
            cells = ["damaged", error.problem, "", "", size, ""]
        table.add_row(Text(str(path)), *(Text(cell) for cell in cells))
    PlainConsole().print(table)


@app.command()
def columns(
    table: Annotated[
        str | None, typer.Argument(metavar="TABLE", help="rounds, clients, …; by default all.")
    ] = None,
) -> None:
    """List the columns of a run's tables, each with its type and meaning."""
    from rich.table import Table
    from rich.text import Text

    from fdsim.cli.console import PlainConsole
    from fdsim.errors import RunFolderError
    from fdsim.telemetry.dictionary import dictionary

    known = dictionary()
    if table is not None and table not in known:
        raise RunFolderError("list columns", f"no table called '{table}'", f"there is: {', '.join(known)}")
    for name in [table] if table else list(known):
        shown = Table("column", "type", "meaning", title=name, title_justify="left")
        for column in known[name]:
            shown.add_row(*(Text(cell) for cell in (column.name, column.type, column.meaning)))
        PlainConsole().print(shown)


def _size(path: Path) -> str:
    size = float(sum(file.stat().st_size for file in path.rglob("*") if file.is_file()))
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
