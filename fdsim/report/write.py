"""Write the page of a run or study folder."""

from __future__ import annotations

from pathlib import Path

from fdsim.errors import RunFolderError, StorageError
from fdsim.files import UnfinishedFile
from fdsim.report.data import gather
from fdsim.report.figure import Page
from fdsim.report.page import render
from fdsim.report.run_page import run_page


def write(folder: Path, out: Path) -> Path:
    """Write the report of `folder` to `out`, which appears only when it is complete."""
    page = render(_page(folder))
    try:
        with UnfinishedFile(out) as waiting:
            waiting.write_text(page, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{out}: the report cannot be written ({error.strerror or error})") from None
    return out


def _page(folder: Path) -> Page:
    if (folder / "run.json").is_file():
        return run_page(gather(folder))
    if (folder / "study.json").is_file():
        from fdsim.report.study_data import gather_study
        from fdsim.report.study_page import study_page

        return study_page(gather_study(folder))
    if not folder.is_dir():
        raise RunFolderError(
            str(folder), "there is no such folder", "`fdsim list runs` shows the runs there are"
        )
    raise RunFolderError(
        str(folder),
        "neither a run nor a study: it has no run.json and no study.json",
        "`fdsim list runs` shows the runs there are",
    )
