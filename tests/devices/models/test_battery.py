"""Battery models against theory and against a slow integrator of the same differential equation."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from fdsim.devices.models.battery import Ageing, Battery, Flow, Linear, Mains, Tapered
from fdsim.testing import ContractError, check_battery

BATTERIES: list[Battery] = [
    Mains(),
    Linear(capacity_wh=10, charge_w=5),
    Tapered(capacity_wh=19, charge_w=12),
    Tapered(capacity_wh=15.4, charge_w=5.5, floor_frac=1.0),
    Ageing(capacity_wh=19, charge_w=12, cycles=300),
]


@pytest.mark.parametrize("battery", BATTERIES, ids=lambda battery: battery.kind)
def test_contract(battery: Battery) -> None:
    check_battery(battery)


def test_contract_catches_a_battery_that_gains_unplugged() -> None:
    class Perpetual(Linear):
        def after(self, charge_j: float, time_s: float, flow: Flow) -> float:
            return min(flow.full_j, charge_j + time_s)

    with pytest.raises(ContractError, match="never gains"):
        check_battery(Perpetual(capacity_wh=10, charge_w=5))


@pytest.mark.parametrize("battery", BATTERIES[1:], ids=lambda battery: battery.kind)
def test_an_unplugged_battery_lasts_capacity_over_load(battery: Battery) -> None:
    full_j = battery.full_j(0.0)
    assert battery.time_to_level(full_j, 0.0, Flow(2.5, False, full_j)) == pytest.approx(
        full_j / 2.5, rel=1e-12
    )


def integrated(battery: Tapered, charge_j: float, time_s: float, flow: Flow) -> float:
    """The taper's differential equation in small Runge–Kutta steps, knowing nothing of closed forms."""

    def slope(charge: float) -> float:
        return battery.charge_power_w(charge / flow.full_j) - flow.load_w

    steps = 1000
    h = time_s / steps
    for _ in range(steps):
        a = slope(charge_j)
        b = slope(charge_j + h / 2 * a)
        c = slope(charge_j + h / 2 * b)
        d = slope(charge_j + h * c)
        charge_j = min(flow.full_j, max(0.0, charge_j + h / 6 * (a + 2 * b + 2 * c + d)))
    return charge_j


@settings(max_examples=60, deadline=None)
@given(
    soc=st.floats(0, 1),
    load_w=st.floats(0, 20),
    hours=st.floats(0.01, 6),
    floor=st.floats(0.02, 0.9),
    taper=st.floats(0.3, 0.95),
)
def test_the_taper_follows_its_differential_equation(
    soc: float, load_w: float, hours: float, floor: float, taper: float
) -> None:
    battery = Tapered(capacity_wh=15, charge_w=10, floor_frac=floor, taper_soc=taper)
    flow = Flow(load_w, True, battery.full_j(0.0))
    found = battery.after(soc * flow.full_j, hours * 3600, flow)
    slow = integrated(battery, soc * flow.full_j, hours * 3600, flow)
    assert found == pytest.approx(slow, abs=1e-3 * flow.full_j)


def test_fade_takes_capacity_with_every_charge() -> None:
    battery = Ageing(capacity_wh=10, charge_w=5, cycles=500, fade_per_cycle_frac=0.0004)
    assert battery.full_j(0.0) == pytest.approx(0.8 * 36_000)
    assert battery.full_j(100 * 36_000.0) == pytest.approx((1 - 0.0004 * 600) * 36_000)


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"capacity_wh": -1, "charge_w": 5}, "capacity_wh"),
        ({"capacity_wh": 4000, "charge_w": 5}, "capacity_wh"),
        ({"capacity_wh": 400, "charge_w": 5}, "mAh are not Wh"),
        ({"capacity_wh": 15, "charge_w": 0}, "charge_w"),
        ({"capacity_wh": 15, "charge_w": 5, "charge_efficiency_frac": 1.2}, "charge_efficiency_frac"),
        ({"capacity_wh": math.nan, "charge_w": 5}, "capacity_wh"),
    ],
)
def test_impossible_physics_is_refused(fields: dict[str, float], word: str) -> None:
    with pytest.raises(ValidationError, match=word):
        Tapered.model_validate(fields)
