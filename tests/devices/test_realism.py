"""Presets against the phones they are made after."""

from __future__ import annotations

import numpy as np
import pytest

from fdsim.devices.config.fleet import DeviceGroup
from fdsim.devices.config.server import Eligibility
from fdsim.devices.engine.eligible import availability
from fdsim.trace.sessions import session_stats

STRICT = Eligibility(requires_charging=True, requires_unmetered=True, requires_idle=True)


@pytest.mark.parametrize(
    "seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)]
)
def test_flash2020_looks_like_the_phones_of_2020(seed: int) -> None:
    """500 phones, five days, idle & charging & on Wi-Fi; the bars are those of the README beside the profiles."""
    fleet = (DeviceGroup.model_validate({"profile": "flash2020", "count": 500}),)
    found = session_stats(availability(fleet, STRICT, seed, days=5))
    assert 0.06 <= found.mean_frac <= 0.10
    assert 0.20 <= found.never_frac <= 0.38
    for horizon_s, real in ((120.0, 0.061), (300.0, 0.130), (600.0, 0.22)):
        assert found.leave_within[horizon_s] == pytest.approx(real, rel=0.25)
    assert 1.6 <= found.night_day_swing <= 4.0


def test_us_nightly_has_a_fourfold_swing() -> None:
    fleet = (DeviceGroup.model_validate({"profile": "us_nightly", "count": 80}),)
    by_hour = session_stats(availability(fleet, STRICT, 1, days=3)).by_hour
    assert 3.0 <= np.mean(by_hour[0:5]) / np.mean(by_hour[10:16]) <= 5.5


def test_fedscale_devices_charge_a_sixth_of_the_time() -> None:
    fleet = (DeviceGroup.model_validate({"profile": "fedscale", "count": 150}),)
    charging = Eligibility(requires_charging=True, requires_unmetered=False)
    assert session_stats(availability(fleet, charging, 1, days=5)).mean_frac == pytest.approx(0.16, abs=0.04)
