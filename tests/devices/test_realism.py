"""Presets against the phones they are made after."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fdsim.devices.config.fleet import DeviceGroup
from fdsim.devices.config.server import Eligibility
from fdsim.devices.engine.eligible import availability
from fdsim.devices.fitting.fit import compare, fit
from fdsim.devices.fitting.fleet_log import fleet_log
from fdsim.devices.fitting.statistics import record
from fdsim.rng import stream
from fdsim.trace.availability import Observed
from fdsim.trace.importers.fedscale import read_fedscale
from fdsim.trace.importers.flash import read_flash
from fdsim.trace.intervals import on_at
from fdsim.trace.sessions import session_stats

STRICT = Eligibility(requires_charging=True, requires_unmetered=True, requires_idle=True)


@pytest.fixture
def flash(shared: Path) -> list[Observed]:
    """Return the FLASH phones that lie beside the repository; the package ships none."""
    path = shared / "traces" / "flash_state_traces_50dev.json"
    if not path.is_file():
        pytest.skip("the FLASH logs are not among the shared files")
    return read_flash(path)


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


@pytest.mark.parametrize(
    ("devices", "seeds"),
    [(250, (1, 2)), pytest.param(500, (21, 22, 23, 24, 25), marks=pytest.mark.slow)],
)
def test_flash2020_has_the_statistics_of_the_phones(
    flash: list[Observed], devices: int, seeds: tuple[int, ...]
) -> None:
    """The preset is what `fdsim fleet fit --all-phones` made of these phones, with other seeds."""
    real = [record(phone) for phone in flash]
    rows, _ = compare({"profile": "flash2020"}, real, available=False, devices=devices, seeds=seeds)
    assert [f"{row.statistic}: {row.simulated:.3g} for {row.real:.3g}" for row in rows if not row.good] == []


@pytest.mark.slow
def test_a_fit_to_half_of_the_phones_is_good_on_the_other_half(flash: list[Observed]) -> None:
    """Fitted by itself to 25 phones, tested on 25 others; as many rows are good as of real phones in its place."""
    rows = fit(flash, "FLASH", seed=0).rows
    bad = [f"{row.statistic}: {row.simulated:.3g} for {row.real:.3g}" for row in rows if not row.good]
    assert len(bad) <= 0.1 * len(rows), bad


@pytest.mark.parametrize("profile", ["flash2020", "fedscale", "us_nightly"])
def test_presets_begin_as_they_go_on(profile: str) -> None:
    """Phones are met in the middle of their lives: the first hour and night are like those a week later.

    Day 0 is a Monday, before which owners go to sleep later than before other days.
    """
    group = DeviceGroup.model_validate({"profile": profile, "count": 400})
    logs = fleet_log(group, 8, days=7.25)

    def shares(begin_h: float, end_h: float) -> dict[str, float]:
        times_s = np.arange(begin_h * 3600.0, end_h * 3600.0, 600.0)
        found = {
            state: float(np.mean([on_at(log.during(state), times_s) for log in logs]))
            for state in ("charging", "idle", "wifi")
        }
        found["eligible"] = float(np.mean([on_at(log.eligible, times_s) for log in logs]))
        levels = [log.levels[np.searchsorted(log.levels[:, 0], times_s, side="right") - 1, 1] for log in logs]
        return {**found, "soc": float(np.mean(levels)), "soc, spread": float(np.std(levels))}

    for begin_h, end_h in ((0.0, 1.0), (0.0, 6.0)):
        first, week_later = shares(begin_h, end_h), shares(begin_h + 168.0, end_h + 168.0)
        assert first == pytest.approx(week_later, abs=0.07), (begin_h, end_h)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_us_nightly_loses_as_many_as_production_and_swings_fourfold(seed: int) -> None:
    """Of those who start, 6–10 % are lost within rounds of 120–180 s; 3–5 times as many are eligible at night."""
    fleet = (DeviceGroup.model_validate({"profile": "us_nightly", "count": 150}),)
    found = session_stats(availability(fleet, STRICT, seed, days=5))
    assert 0.06 <= found.leave_within[120.0] <= found.leave_within[180.0] <= 0.10
    assert 3.0 <= np.mean(found.by_hour[0:5]) / np.mean(found.by_hour[10:16]) <= 5.0


def test_fedscale_devices_charge_a_sixth_of_the_time() -> None:
    fleet = (DeviceGroup.model_validate({"profile": "fedscale", "count": 150}),)
    charging = Eligibility(requires_charging=True, requires_unmetered=False)
    assert session_stats(availability(fleet, charging, 1, days=5)).mean_frac == pytest.approx(0.17, abs=0.03)


def test_fedscale_has_the_statistics_of_the_devices(shared: Path) -> None:
    """The preset is what `fdsim fleet fit --all-phones` made of these devices, with other seeds."""
    path = shared / "traces" / "fedscale_mobiperf_availability_150dev.json"
    if not path.is_file():
        pytest.skip("FedScale's availability is not among the shared files")
    real = [record(device) for device in read_fedscale(path)]
    rows, _ = compare({"profile": "fedscale"}, real, available=True, devices=300, seeds=(1, 2))
    assert [f"{row.statistic}: {row.simulated:.3g} for {row.real:.3g}" for row in rows if not row.good] == []


def test_fedscale_devices_are_of_two_kinds() -> None:
    """Quantiles of the table: 18/25/50/149/192 ms at 5/25/50/75/95 %."""
    compute = DeviceGroup.model_validate({"profile": "fedscale", "count": 1}).compute
    ms = [1e3 / compute.speed(stream(1, client)) for client in range(4000)]
    found = np.quantile(ms, [0.05, 0.25, 0.75, 0.95])
    assert found == pytest.approx([18, 25, 149, 192], rel=0.15)
