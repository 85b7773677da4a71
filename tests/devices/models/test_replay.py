"""Replay of measured availability, across the seam where it wraps."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from fdsim.devices.config.fleet import DeviceGroup
from fdsim.devices.config.server import Eligibility
from fdsim.devices.engine.eligible import availability
from fdsim.devices.models.replay import ReplayLink, ReplayUsage, row_for, wrapped
from fdsim.testing import check_connectivity, check_usage
from fdsim.trace.availability import observe, write_availability
from fdsim.trace.intervals import on_at, total_s

STRICT = Eligibility(requires_charging=True, requires_unmetered=True, requires_idle=True)


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Ten devices over two days from 06:00 on; device i is available for 2(i+1) hours a day, the last ones across 06:00."""
    devices = []
    for i in range(10):
        begin = 21_600.0
        starts = [begin + 43_200 * 1.9 - 3_600 * i, begin + 86_400 + 43_200 * 1.9 - 3_600 * i]
        found = np.array([[s, min(s + 7_200 * (i + 1) / 2, begin + 172_800)] for s in starts])
        devices.append(observe(f"d{i}", (begin, begin + 172_800), {"available": found}, "test"))
    write_availability(tmp_path / "a.parquet", devices, "test")
    return str(tmp_path / "a.parquet")


@pytest.mark.parametrize("begin_s", [0.0, 30.0, 95.0])
def test_wrapping_is_right_at_every_second(begin_s: float) -> None:
    """Second t of the replay is second begin + (t − begin) mod span of the trace, before, in and after the first round."""
    span_s = 100.0
    seen = begin_s + np.array([[0.0, 10.0], [40.0, 60.0], [90.0, 100.0]])
    t_s, found = 0.0, []
    for on, length_s in islice(wrapped(seen, begin_s, begin_s + span_s), 60):
        found.append((t_s, t_s + length_s, on))
        t_s += length_s
    for second in np.arange(0.5, 500.0):
        expected = bool(on_at(seen, np.array([begin_s + (second - begin_s) % span_s]))[0])
        [replayed] = [on for a, b, on in found if a <= second < b]
        assert replayed == expected, second


def test_contracts(file: str) -> None:
    check_connectivity(ReplayLink(path=file))
    check_usage(ReplayUsage(path=file))


def test_replayed_devices_are_eligible_exactly_when_the_trace_says(file: str) -> None:
    group = DeviceGroup.model_validate(
        {
            "count": 10,
            "low_soc": 0.0,
            "initial_soc": [1.0, 1.0],
            "battery": {"capacity_wh": 150.0},
            "connectivity": {"kind": "replay", "path": file, "assignment": "in_order"},
            "usage": {"kind": "replay", "path": file, "assignment": "in_order"},
        }
    )
    for i, seen in enumerate(availability((group,), STRICT, 1, days=6)):
        # Days 1 to 4 are whole replays of a day.
        inside = seen.intervals[(seen.intervals[:, 0] > 86_400) & (seen.intervals[:, 1] < 5 * 86_400)]
        assert total_s(seen.intervals) == pytest.approx(6 * 3_600 * (i + 1), rel=0.35)
        assert len(inside) >= 3


def test_rows_are_dealt_at_random_each_once_before_any_twice(file: str) -> None:
    rows = [row_for(client, 1, 10, "random") for client in range(20)]
    assert sorted(rows[:10]) == sorted(rows[10:]) == list(range(10))
    assert rows[:10] != list(range(10))
    assert rows != [row_for(client, 2, 10, "random") for client in range(20)]
    bound = ReplayLink(path=file).for_device(3, 1)
    assert bound.row == ReplayUsage(path=file).for_device(3, 1).row == rows[3]


def test_missing_files_and_rows(tmp_path: Path, file: str) -> None:
    with pytest.raises(ValidationError, match="no such file"):
        ReplayLink(path=str(tmp_path / "nothing.parquet"))
    with pytest.raises(Exception, match="no row 99"):
        next(ReplayLink(path=file, row=99).spells(np.random.default_rng(1)))
