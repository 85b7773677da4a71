"""`fdsim report`: one page that explains a run or a study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    folder: Annotated[Path, typer.Argument(metavar="RUN_OR_STUDY", help="A run or study folder.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="F.html", help="Output file; by default FOLDER/report.html."),
    ] = None,
) -> None:
    """Write one HTML page that explains a run or a study."""
    from fdsim.report import write_report

    written = write_report(folder, out)
    typer.echo(f"{written}: {written.stat().st_size / 1e6:.1f} MB, opens in any browser")
