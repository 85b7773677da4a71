"""From a folder to a page on disk."""

from __future__ import annotations

import os
from pathlib import Path

from fdsim.errors import StorageError
from fdsim.report.data import gather
from fdsim.report.page import render
from fdsim.report.run_page import run_page


def write(folder: Path, out: Path) -> Path:
    """Writes the report of `folder` to `out`, which appears only when it is complete."""
    page = render(run_page(gather(folder)))
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(page, encoding="utf-8")
        temporary.replace(out)
    except OSError as error:
        raise StorageError(f"{out}: the report cannot be written ({error.strerror or error})") from None
    finally:
        temporary.unlink(missing_ok=True)
    return out
