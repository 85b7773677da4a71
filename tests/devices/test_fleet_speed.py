"""The fleet's speed against SimPy itself; run alone on a quiet machine: pytest -m benchmark -n0 -s."""

from __future__ import annotations

import pytest

from fdsim.devices.bench import DAYS, fleet_speed


@pytest.mark.benchmark
@pytest.mark.parametrize("devices", [1_000, 20_000])
def test_events_per_second_are_half_of_a_bare_loop(devices: int) -> None:
    rounds, selection = DAYS["living only"]
    found = max(
        (fleet_speed(devices, rounds=rounds, selection=selection) for _ in range(2)), key=lambda f: f.ratio
    )
    print(
        f"{devices} devices: {found.ratio:.2f} of bare SimPy, {found.us_per_device_day:.0f} µs per device-day"
    )
    assert found.ratio >= 0.5


@pytest.mark.benchmark
def test_a_hundred_thousand_phones_for_a_day() -> None:
    """Within 2.5 GB, and no more than half again the time per device of a thousand."""
    small = min(
        (fleet_speed(1_000, rounds=12, selection={"kind": "all"}) for _ in range(3)), key=lambda f: f.day_s
    )
    large = fleet_speed(100_000, rounds=12, selection={"kind": "all"})
    growth = large.us_per_device_day / small.us_per_device_day
    print(f"{growth:.2f}× the time per device-day, {large.peak_mb:.0f} MB")
    assert large.peak_mb < 2_500
    assert growth <= 1.5


def test_the_benchmark_itself_works() -> None:
    found = fleet_speed(20, rounds=2, selection={"kind": "all"})
    assert found.events > 20
    assert found.ratio > 0
