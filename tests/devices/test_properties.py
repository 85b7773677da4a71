"""Whatever the scenario: energy is conserved, everybody has one outcome, time goes on."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdsim.devices.config.fleet import DeviceGroup
from fdsim.devices.config.outages import Cell, Outage
from fdsim.devices.config.profiles import names
from fdsim.devices.config.server import Eligibility, Server
from fdsim.devices.config.simulation import SimulationConfig
from fdsim.devices.engine.device import Device
from fdsim.devices.engine.world import World, simulate
from fdsim.devices.models.battery import Flow
from fdsim.rng import ClientStreams
from fdsim.trace import NONE, Outcome, Phase
from fdsim.workload import NetCost, Workload

PHONES = [name for name in names() if name not in ("raspberry_pi_4", "jetson_nano")]


def heavy(clients: int) -> Workload:
    """Work of minutes, so that much can happen in a round."""
    return Workload(NetCost(3e8, 0.1, 10**6), np.full(clients, 500.0), 4_000_000, 4_000_000)


@st.composite
def configs(draw: st.DrawFn) -> SimulationConfig:
    groups = []
    for name in draw(st.lists(st.sampled_from(names()), min_size=1, max_size=2)):
        fields: dict[str, Any] = {
            "profile": name,
            "count": draw(st.integers(1, 3)),
            "cell": draw(st.sampled_from(["", "a"])),
        }
        if draw(st.booleans()):
            fields["crash"] = {"every_s": 3000.0, "recovers_s": 300.0}
        if name in PHONES:
            fields["initial_soc"] = [draw(st.floats(0, 0.5)), draw(st.floats(0.5, 1))]
        groups.append(DeviceGroup.model_validate(fields))
    server = Server.model_validate(
        {
            "deadline_s": draw(st.floats(30, 1200)),
            "round_interval_s": draw(st.floats(100, 7200)),
            "start_hour": draw(st.sampled_from([0.0, 7.5, 20.0])),
            "on_lapse": draw(st.sampled_from(["abort", "pause"])),
            "over_selection": draw(st.sampled_from([1.0, 1.5])),
            "min_reports_frac": draw(st.sampled_from([0.0, 0.5])),
            "selection": draw(st.sampled_from([{"kind": "all"}, {"kind": "random", "frac": 0.5}])),
            "eligibility": draw(
                st.fixed_dictionaries(
                    {k: st.booleans() for k in ("requires_charging", "requires_unmetered", "requires_idle")}
                )
            ),
        }
    )
    outages = draw(st.sampled_from([(), (Outage(every_s=2000.0, lasts_s=500.0, takes=("power", "wifi")),)]))
    cells = (Cell(name="a", down_bps=5e6, up_bps=2e6),)
    total = sum(g.count for g in groups)
    return SimulationConfig(tuple(groups), server, heavy(total), 6, draw(st.integers(0, 99)), outages, cells)


@settings(max_examples=40, deadline=None)
@given(configs())
def test_one_outcome_each_and_time_that_goes_on(config: SimulationConfig) -> None:
    last_s = 0.0
    for made in simulate(config):
        assert made.clients == config.devices
        assert np.isin(made.outcome, list(Outcome)).all()
        dropped = made.outcome == Outcome.dropped
        np.testing.assert_array_equal(dropped, made.cause != NONE)
        assert (
            last_s
            <= made.round_start_s
            <= made.round_end_s
            <= made.round_start_s + config.server.deadline_s + 1e-6
        )
        last_s = made.round_end_s
        selected = made.selected
        assert (made.start_s[selected] <= made.end_s[selected]).all()
        assert (made.end_s[selected] <= made.round_end_s + 1e-6).all()
        done = made.completed
        assert (made.phase[done] == Phase.upload).all()
        assert (made.progress[done] == 1).all()
        assert ((made.progress >= 0) & (made.progress <= 1)).all()
        assert (made.energy_j >= 0).all()
        assert ((made.soc_end[selected] >= 0) & (made.soc_end[selected] <= 1 + 1e-6)).all()
        spent_s = np.nansum([made.download_s, made.train_s, made.upload_s], axis=0)
        np.testing.assert_allclose(
            spent_s[selected], (made.end_s - made.start_s)[selected], atol=1e-2, rtol=1e-5
        )


@settings(max_examples=25, deadline=None)
@given(configs())
def test_energy_is_conserved(config: SimulationConfig) -> None:
    """The event log's loads and chargers, put through each battery once more, give the charges it tells of.

    Unplugged, the books are kept by hand: charge lost = load × time, to 1e-6 of the energy moved.
    """
    log: list[tuple[float, int, str, float]] = []
    world = World(config, lambda *event: log.append(event))
    for round_index in range(config.rounds):
        world.env.run(until=world.env.process(world.serve(round_index)))
    for device in world.devices:
        if device.battery.model.kind == "mains":
            continue
        rows = [(t, what, value) for t, client, what, value in log if client == device.client]
        states = _states(rows)
        drained = kept = 0.0
        for (t0, load_w, soc0, plugged0), (t1, _, soc1, _) in pairwise(states):
            if not plugged0:
                drained += load_w * (t1 - t0)
                kept += (soc0 - soc1) * device.battery.full_j
        assert kept == pytest.approx(drained, rel=1e-6, abs=1e-6 * device.battery.full_j)
        assert device.battery.spent_j >= 0


def _states(rows: list[tuple[float, str, float]]) -> list[tuple[float, float, float, bool]]:
    """(time, load, soc, power at the charger) at each change, from the log alone."""
    found = []
    charger = outage = False
    load_w = 0.0
    for t, what, value in rows:
        if what == "charger":
            charger = bool(value)
        elif what == "outage":
            outage = bool(value)
        elif what == "load_w":
            load_w = value
        elif what == "soc":
            found.append((t, load_w, value, charger and not outage))
    return found


@settings(max_examples=20, deadline=None)
@given(name=st.sampled_from(PHONES), seed=st.integers(0, 50))
def test_charging_follows_the_battery_and_the_books_balance(name: str, seed: int) -> None:
    """Charge at the end = charge at the start + what the charger gave − what was spent, to 1e-6 relative."""
    group = DeviceGroup.model_validate({"profile": name, "count": 1})
    device = Device(0, group, Eligibility(), ClientStreams(seed, 1), outages=[])
    start_j, given_j = device.battery.charge_j, 0.0
    while device.next_s < 86_400:
        flow, before_j, then_s = device.battery.flow, device.battery.charge_j, device.battery.t_s
        device.advance(device.next_s)
        if flow.plugged:
            given_j += _given(device, before_j, device.battery.t_s - then_s, flow)
    balance_j = start_j + given_j - device.battery.spent_j
    moved_j = start_j + given_j + device.battery.spent_j
    assert device.battery.charge_j == pytest.approx(balance_j, abs=1e-6 * moved_j)


NODES, WEIGHTS = np.polynomial.legendre.leggauss(24)


def _given(device: Device, charge_j: float, time_s: float, flow: Flow) -> float:
    """What the charger delivered: the power the battery accepts at each charge, integrated numerically.

    A battery that stays full takes the load and nothing more.
    """
    battery: Any = device.battery.model
    rest_s = 0.0
    if battery.charge_power_w(1.0) >= flow.load_w:
        rest_s = max(0.0, time_s - battery.time_to_level(charge_j, flow.full_j, flow))
    # The charging power bends at the taper and at the floor: integrate between the bends.
    bends = [0.0, time_s - rest_s]
    for soc in (battery.taper_soc, battery.taper_soc + (1 - battery.floor_frac) * (1 - battery.taper_soc)):
        bends.append(min(time_s - rest_s, battery.time_to_level(charge_j, soc * flow.full_j, flow)))
    total_j = flow.load_w * rest_s
    for a, b in pairwise(sorted(bends)):
        times = (a + b) / 2 + (b - a) / 2 * NODES
        power = [
            battery.charge_power_w(battery.after(charge_j, t, flow) / flow.full_j) for t in times.tolist()
        ]
        total_j += float((b - a) / 2 * (WEIGHTS * power).sum())
    return total_j
