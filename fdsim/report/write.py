"""Write the page of a run or study folder."""

from __future__ import annotations

import os
from pathlib import Path

from fdsim.errors import RunFolderError, StorageError
from fdsim.files import UnfinishedFile
from fdsim.report.data import gather
from fdsim.report.figure import Page
from fdsim.report.page import render
from fdsim.report.run_page import run_page
from fdsim.telemetry.doubts import blaming_edits


def write(folder: Path, out: Path) -> Path:
    """Write the report of `folder` to `out`, which appears only when it is complete."""
    with blaming_edits(folder):
        laid_out = _page(folder)
    study = _study_around(folder, out)
    try:
        plotly = "" if study is None else _share_plotly(study, out)
        page = render(laid_out, plotly=plotly)
        with UnfinishedFile(out) as waiting:
            waiting.write_text(page, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{out}: the report cannot be written ({error.strerror or error})") from None
    return out


def _study_around(folder: Path, out: Path) -> Path | None:
    """Return the study to which a page written in its own folder belongs; pages elsewhere stand alone."""
    if out.resolve().parent != folder.resolve():
        return None
    places = [folder.resolve(), *folder.resolve().parents[:2]]
    return next((place for place in places if (place / "study.json").is_file()), None)


def _share_plotly(study: Path, out: Path) -> str:
    """Write plotly's 5 MB once for all pages of a study, and return its address seen from the page."""
    from plotly.offline import get_plotlyjs, get_plotlyjs_version

    file = study / f"plotly-{get_plotlyjs_version()}.min.js"
    script = get_plotlyjs()
    if not file.is_file() or file.stat().st_size != len(script.encode()):
        with UnfinishedFile(file) as waiting:
            waiting.write_text(script, encoding="utf-8")
    return Path(os.path.relpath(file, out.resolve().parent)).as_posix()


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
