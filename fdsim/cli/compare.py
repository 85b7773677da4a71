"""`fdsim compare`: what several runs say together."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console


def compare(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN_OR_STUDY…", help="Run folders and study folders.")
    ],
    by: Annotated[str, typer.Option("--by", help="What to compare: strategy, or a swept key.")] = "strategy",
    against: Annotated[
        str | None, typer.Option("--against", help="The baseline; by default dropout.")
    ] = None,
    target: Annotated[
        float | None,
        typer.Option("--target", min=0.0, max=1.0, help="Accuracy up to which costs are counted."),
    ] = None,
    files: Annotated[
        list[Path] | None,
        typer.Option("--out", metavar="FILE", help="Also write .csv, .parquet or .tex; repeatable."),
    ] = None,
) -> None:
    """Compare strategies, paired on seeds and traces, with confidence intervals."""
    from fdsim.cli.console import PlainConsole

    compare_and_show(folders, PlainConsole(), by=by, against=against, target=target, files=files or [])


def compare_and_show(
    folders: list[Path],
    console: Console,
    *,
    by: str,
    against: str | None,
    target: float | None,
    files: list[Path],
) -> None:
    from fdsim.comparison.compare import Question, compare
    from fdsim.comparison.curves import curves_of
    from fdsim.comparison.output import print_comparison, write_comparison
    from fdsim.telemetry.doubts import blaming_edits

    with ExitStack() as blamed:
        for folder in folders:
            blamed.enter_context(blaming_edits(folder))
        found = compare(curves_of(folders), Question(by=by, against=against, target_accuracy=target))
    # Files first: whoever reads the table may stop after its first lines.
    for file in files:
        write_comparison(found, file)
    print_comparison(found, console)
    for file in files:
        typer.echo(f"written: {file}")
