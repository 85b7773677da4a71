"""Take the README's picture of a report, in a headless Chromium.

fdsim run scenarios/quickstart.toml
python analysis/report_picture.py runs/quickstart/report.html analysis/results/report.png
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

_ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
_SIZE = {"width": 1200, "height": 1500}


def take_picture(report: Path, picture: Path) -> None:
    """Open the report, wait until every figure is drawn, and save the top of the page."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("chromium is not installed (Debian: apt-get install chromium)")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=_ARGUMENTS)
        page = browser.new_page(viewport=_SIZE, color_scheme="light")
        page.set_default_timeout(300_000)
        page.goto(report.resolve().as_uri())
        page.wait_for_selector("html[data-ready=yes]", state="attached")
        picture.parent.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=picture)
        browser.close()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python analysis/report_picture.py REPORT.html PICTURE.png")
    take_picture(Path(sys.argv[1]), Path(sys.argv[2]))
