"""The report: one self-contained HTML page that explains a run or a study."""

from __future__ import annotations

from pathlib import Path

NAME = "report.html"


def write_report(folder: Path | str, out: Path | str | None = None) -> Path:
    """Write the report of a run or study folder, into that folder unless `out` is given."""
    from fdsim.report.write import write

    folder = Path(folder)
    return write(folder, folder / NAME if out is None else Path(out))
