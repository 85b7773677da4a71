"""The report of a fit as people see it: numbers, what is allowed, 80 columns, and the page of pictures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fdsim.cli.fleet import app
from fdsim.devices.config.fleet import DeviceGroup
from fdsim.devices.fitting.fleet_log import fleet_log
from fdsim.devices.fitting.goodness import Row
from fdsim.devices.fitting.picture import page
from fdsim.devices.fitting.statistics import record
from fdsim.devices.fitting.table import allowed, number
from fdsim.trace.availability import write_availability

NAN = float("nan")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1207.4, "1 207"),
        (999.6, "1 000"),
        (344.2, "344"),
        (28.44, "28.4"),
        (9.999, "10.0"),
        (1.0, "1.00"),
        (0.0612, "0.061"),
        (0.0003, "0.0003"),
        (-0.0212, "-0.021"),
        (0.0, "0"),
        (NAN, "–"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("row", "text"),
    [
        # The interval, 15 % either side of the real value, or both together where they meet.
        (Row("a", False, 10.0, 5.0, 20.0, 0.0, False), "5.00–20.0"),
        (Row("a", False, 10.0, 9.9, 10.1, 0.0, False), "8.50–11.5"),
        (Row("a", False, 10.0, 9.0, 12.0, 0.0, False), "8.50–12.0"),
        (Row("a", False, 10.0, 20.0, 30.0, 0.0, False), "8.50–11.5 or 20.0–30.0"),
        (Row("a", False, -0.02, -0.05, 0.007, 0.0, True), "-0.050 to 0.007"),
        (Row("KS a", True, 0.1, 0.0, 0.15, 0.2, False), "≤ 0.150"),
    ],
)
def test_allowed_is_what_would_be_good(row: Row, text: str) -> None:
    assert allowed(row) == text


def test_the_table_says_what_is_good_in_80_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    logs = fleet_log(DeviceGroup.model_validate({"profile": "flash2020", "count": 12}), 5, days=2)
    path, out = tmp_path / "a_log_of_phones_with_a_long_name.parquet", tmp_path / "table.parquet"
    write_availability(path, logs, "test")
    words = ["check", "us_nightly", str(path), "--seeds", "1", "--devices", "10", "--out", str(out)]
    shown = CliRunner().invoke(app, words, catch_exceptions=False).output
    lines = [line for line in shown.split("\n") if str(tmp_path) not in line]
    assert max(map(len, lines)) <= 80
    assert re.search(r"statistic +┃ +simulated ┃ +real ┃ +allowed ┃ good", shown)
    assert re.search(r"distance +│ +from real │ of halves │ +allowed │ good", shown)
    assert re.search(r"hour profile +│ +\d\.\d+ │ +\d\.\d+ │ +≤ \d", shown)
    assert "Good is a statistic" in shown
    assert not re.search(r"\de[+-]\d|nan|…", "".join(lines))


def test_the_page_fits_any_width_and_shades_what_may_be_chance(tmp_path: Path) -> None:
    logs = fleet_log(DeviceGroup.model_validate({"profile": "flash2020", "count": 12}), 5, days=2)
    phones = [record(log) for log in logs]
    drawn = page("<b>", [Row("KS <i>", True, NAN, 0.0, 0.1, 0.2, False)], phones, phones)
    assert drawn.count("<svg viewBox") == 6
    assert drawn.count("<polygon") == 1
    assert "width=device-width" in drawn
    assert not re.search(r'<svg[^>]* width="|nan|<b>, |<i>', drawn)
    assert "<td class=bad>KS &lt;i&gt;<td class=bad>0.200<td class=bad>–<td class=bad>≤ 0.100" in drawn
    for label in ("0:00", "24:00", "100 %", "1 min", "1 day"):
        assert f">{label}</text>" in drawn
