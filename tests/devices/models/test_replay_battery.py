"""Replayed batteries: the charge follows the log, whatever the device works at."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from fdsim.devices.config.server import Eligibility
from fdsim.devices.engine.device import Device
from fdsim.devices.engine.eligible import obstacle
from fdsim.devices.models.replay import LoggedCharge, ReplayBattery, repeated_logs
from fdsim.errors import TraceError
from fdsim.rng import ClientStreams
from fdsim.trace import Cause, Phase
from fdsim.trace.availability import Observed, observe, write_availability
from tests.devices.tiny import group

HOUR = 3600.0


def seen(levels: list[list[float]]) -> Observed:
    return observe(
        "a", (10.0, 10.0 + 24 * HOUR), {"wifi": np.empty((0, 2))}, "a", levels=np.array(levels).reshape(-1, 2)
    )


def test_readings_hold_until_the_next_and_go_round() -> None:
    log = LoggedCharge(seen([[10.0, 0.5], [HOUR, 0.1], [2 * HOUR, 0.8]]))
    assert [log.soc_at(t) for t in (0.0, 10.0, HOUR - 1, HOUR, 3 * HOUR, 24 * HOUR + 11)] == [
        0.8,
        0.5,
        0.5,
        0.1,
        0.8,
        0.5,
    ]
    assert log.next_crossing(10.0, 0.2) == HOUR
    assert log.next_crossing(HOUR, 0.2) == 2 * HOUR
    assert log.next_crossing(2 * HOUR, 0.2) == 25 * HOUR
    assert log.next_crossing(0.0, 0.05) == math.inf


def test_a_device_is_low_when_its_log_says_so(tmp_path: Path) -> None:
    """Level 50 % until 1 h, 10 % until 2 h, then 80 %; working hard all the time changes nothing."""
    path = tmp_path / "log.parquet"
    write_availability(path, [seen([[10.0, 0.5], [HOUR, 0.1], [2 * HOUR, 0.8]])], "test")
    made = group(battery={"kind": "replay", "path": str(path)}, low_soc=0.2)
    device = Device(
        0,
        made,
        Eligibility(requires_charging=False, requires_unmetered=False),
        ClientStreams(1, 1),
        outages=[],
    )
    device.work_at(10.0)
    low = []
    for hours in (0.5, 1.0, 1.5, 2.0, 2.5):
        device.advance(hours * HOUR)
        low.append(obstacle(device, Phase.check_in) is Cause.battery_low)
    assert low == [False, True, True, False, False]
    assert device.soc == 0.8


def test_a_log_without_readings_is_refused_and_a_short_one_is_told(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    write_availability(path, [seen([])], "test")
    with pytest.raises(TraceError, match="no battery readings"):
        ReplayBattery(path=str(path)).readings(0, 1)
    assert repeated_logs(str(path), {0}, 12 * HOUR) == ""
    assert "1 of 1 replayed logs" in repeated_logs(str(path), {0}, 48 * HOUR)
