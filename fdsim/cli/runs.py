"""The verbs that look at runs: verify, show, list runs, list columns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fdsim.telemetry.reader import Run

RunFolderArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]


def verify(
    run: RunFolderArgument,
    quick: Annotated[
        bool, typer.Option("--quick", help="Check all hashes, and run the first rounds only.")
    ] = False,
    tolerance: Annotated[
        float,
        typer.Option("--tolerance", min=0.0, help="Let values differ by this much, relative; 0 is exact."),
    ] = 0.0,
    reference: Annotated[
        bool,
        typer.Option("--reference", help="Compare the trace with the reference model of the fleet instead."),
    ] = False,
) -> None:
    """Run a run's scenario again and compare every table value by value."""
    from fdsim.errors import InputError, RunError
    from fdsim.inspect.verify import verify_run

    if reference:
        if quick or tolerance:
            raise InputError(
                "--reference",
                "compares all rounds within its own tolerances",
                "leave out --quick and --tolerance",
            )
        _verify_reference(run)
        return
    verdict = verify_run(run, quick=quick, tolerance=tolerance)
    if verdict.changed:
        typer.echo(f"not as when the run was made: {', '.join(verdict.changed)}")
    if verdict.difference is not None:
        raise RunError(f"{run}: not the same. {verdict.difference}")
    exactly = "bit by bit" if not tolerance else f"within {tolerance:g}"
    typer.echo(f"{run}: the same {exactly} over {verdict.rounds} rounds, real time left out")


def _verify_reference(run: Path) -> None:
    from fdsim.errors import RunError
    from fdsim.inspect.reference import verify_reference

    found = verify_reference(run)
    if found.difference is not None:
        raise RunError(f"{run}: the trace differs from the reference. {found.difference}")
    typer.echo(
        f"{run}: the trace agrees with the reference over {found.rounds} rounds and {found.rows} rows of selected "
        f"clients; times differ by at most {found.largest_time_s:.1g} s"
    )


def show(run: RunFolderArgument) -> None:
    """Show a run's closing table again, or how far one has come that is still going on."""
    from rich.console import Console

    from fdsim.inspect.summary import print_summary
    from fdsim.telemetry.reader import open_run

    opened, console = open_run(run), Console()
    console.print(f"{run}: {_status(opened)}", markup=False, highlight=False, soft_wrap=True)
    for label, facts in opened.manifest["strategies"].items():
        if facts.get("message"):
            console.print(f"{label}: {facts['message']}", markup=False, highlight=False, soft_wrap=True)
    if any(opened.progress.values()):
        print_summary(run, console)


def runs(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to look, at any depth.")] = Path(
        "runs"
    ),
) -> None:
    """Run in a folder: status, progress, scenario, seed and size at a glance."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from fdsim.errors import RunFolderError
    from fdsim.telemetry.reader import find_run_folders, open_run

    if not folder.is_dir():
        raise RunFolderError(str(folder), "there is no such folder", "`fdsim run SCENARIO` makes runs/<name>")
    table = Table("run", "status", "scenario", title=f"runs in {folder}", title_justify="left")
    for heading in ("seed", "rounds", "size"):
        table.add_column(heading, justify="right")
    table.add_column("started")
    for path in find_run_folders(folder):
        size = _size(path)
        try:
            run = open_run(path)
            facts = run.manifest
            cells = [
                run.status,
                facts["name"],
                str(facts["seed"]),
                _rounds(run),
                size,
                facts["started_at"][:16].replace("T", " "),
            ]
        except RunFolderError as error:
            cells = [f"damaged: {error.problem}", "", "", "", size, ""]
        table.add_row(Text(str(path)), *(Text(cell) for cell in cells))
    Console().print(table)


def columns(
    table: Annotated[
        str | None, typer.Argument(metavar="TABLE", help="rounds, clients, …; all if not given.")
    ] = None,
) -> None:
    """The data dictionary: every column of a run's tables, its type and meaning."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from fdsim.errors import RunFolderError
    from fdsim.telemetry.dictionary import dictionary

    known = dictionary()
    if table is not None and table not in known:
        raise RunFolderError("list columns", f"no table called '{table}'", f"there is: {', '.join(known)}")
    for name in [table] if table else list(known):
        shown = Table("column", "type", "meaning", title=name, title_justify="left")
        for column in known[name]:
            shown.add_row(*(Text(cell) for cell in (column.name, column.type, column.meaning)))
        Console().print(shown)


def _status(run: Run) -> str:
    facts = run.manifest
    text = f"{run.status}, {_rounds(run)} rounds"
    return f"{text} ({facts['message']})" if facts.get("message") else text


def _rounds(run: Run) -> str:
    """Rounds done of all there are, over all strategies."""
    progress = run.progress
    return f"{sum(progress.values())}/{run.manifest['rounds'] * len(progress)}"


def _size(path: Path) -> str:
    size = float(sum(file.stat().st_size for file in path.rglob("*") if file.is_file()))
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
