"""A run of 1 000 clients and 500 rounds makes a page quickly, and a page that can be opened."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fdsim.report import write_report


@pytest.mark.slow
def test_a_thousand_clients_and_five_hundred_rounds(large: Path, tmp_path: Path) -> None:
    began = time.perf_counter()
    page = write_report(large, tmp_path / "report.html")
    assert time.perf_counter() - began < 60
    assert page.stat().st_size < 25e6
