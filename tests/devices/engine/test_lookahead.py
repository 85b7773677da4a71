"""Devices that live through many rounds at once end as they would round by round."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from fdsim.bench.fleet import small_work
from fdsim.devices.config.fleet import DeviceGroup
from fdsim.devices.config.outages import Cell, Outage
from fdsim.devices.config.server import Server
from fdsim.devices.config.simulation import SimulationConfig
from fdsim.devices.engine import lookahead, round_ledger, world
from fdsim.devices.engine.world import World
from fdsim.devices.models.battery import Flow, Tapered, falls_straight
from tests.devices.tiny import Habit, Link, ending, group, live, workload

SERVERS: dict[str, dict[str, Any]] = {
    "everybody": {},
    "a few": {"selection": {"kind": "random", "clients_per_round": 9}},
    "closed early": {"selection": {"kind": "random", "clients_per_round": 9}, "over_selection": 1.6},
    "paused": {"on_lapse": "pause", "deadline_s": 900.0, "round_interval_s": 1000.0},
    "strict": {"eligibility": {"requires_charging": True, "requires_idle": True}, "min_reports_frac": 0.2},
}


def config(server: dict[str, Any], rounds: int = 20) -> SimulationConfig:
    """Phones alone, phones that crash under a cell with outages, and phones that charge at night."""
    crash = {"every_s": 4000.0, "recovers_s": 600.0}
    tables: list[dict[str, Any]] = [
        {"profile": "flash2020", "count": 30},
        {"profile": "flash2020", "count": 10, "site": "s", "cell": "c", "crash": crash},
        {"profile": "us_nightly", "count": 10},
    ]
    return SimulationConfig(
        tuple(DeviceGroup.model_validate(table) for table in tables),
        Server.model_validate(server),
        small_work(50),
        rounds,
        4,
        (Outage(site="s", takes=("power", "wifi"), every_s=5000.0, lasts_s=900.0),),
        (Cell(name="c", down_bps=2e7, up_bps=1e7),),
    )


def lived(made: SimulationConfig) -> list[Any]:
    """All columns of all rounds, when each was closed, and what the devices are like in the end."""
    found: list[Any] = []
    alive = World(made)
    for closed in alive.rounds():
        found += [*vars(closed).values(), float(alive.env.now)]
    for device in alive.devices:
        battery = device.battery
        found += [battery.t_s, battery.charge_j, battery.spent_j, device.changes, device.next_s]
    return found


@pytest.mark.parametrize("server", SERVERS)
def test_the_same_to_the_last_bit_round_by_round(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = config(SERVERS[server])
    assert lookahead.is_possible(made)
    expected = lived(made)
    for rounds_at_once in (1, 7):
        monkeypatch.setattr(lookahead, "MOST_ROUNDS", rounds_at_once)
        for a, b in zip(lived(made), expected, strict=True):
            np.testing.assert_array_equal(a, b)
    monkeypatch.setattr(world, "is_possible", lambda _: False)
    for a, b in zip(lived(made), expected, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "server",
    [{"selection": {"kind": "all", "pool": "eligible"}}, {"deadline_s": 1800.0, "round_interval_s": 1800.0}],
    ids=["selected among the eligible", "rounds that may start late"],
)
def test_there_is_no_lookahead_to_what_cannot_be_known(server: dict[str, Any]) -> None:
    assert not lookahead.is_possible(config(server))


def test_a_device_goes_on_after_a_round_that_the_clock_had_to_decide() -> None:
    """Rounds at 0, 100 and 200 s take 14 s each; the link is gone from 105 to 150 s, in the middle of the second."""
    link = Link(timetable=(("wifi", 105.0), ("none", 45.0), ("wifi", 1e9)))
    rounds, _ = live(
        group(connectivity=link, usage=Habit()),
        rounds=3,
        round_interval_s=100.0,
        deadline_s=50.0,
        eligibility={"requires_unmetered": True},
    )
    assert [ending(made) for made in rounds] == [
        ("completed", "upload", 14.0),
        ("link_lost", "train", 105.0),
        ("completed", "upload", 214.0),
    ]


def test_only_selected_devices_are_advanced() -> None:
    made = config({"selection": {"kind": "random", "clients_per_round": 1}}, rounds=2)
    alive = World(dataclasses.replace(made, workload=workload(50)))
    selected = {int(closed.selected[0]) for closed in alive.rounds()}
    assert {device.client for device in alive.devices if device.battery.t_s > 0.0} <= selected


def test_rows_are_packed_as_they_are_read() -> None:
    refused = np.frombuffer(round_ledger.pack_refused(7, 3, 2, 0.5), round_ledger.REFUSED)
    assert refused.tolist() == [(7, 3, 2, 0.5)]
    completed = np.frombuffer(
        round_ledger.pack_completed(7, 1, 0.5, 0.4, 2.0, 12.0, 14.0, 130.0), round_ledger.COMPLETED
    )
    assert completed.tolist() == [(7, 1, 0.5, 0.4, 2.0, 12.0, 14.0, 130.0)]


class Cold(Tapered):
    """A battery that loses half again as much."""

    def after(self, charge_j: float, time_s: float, flow: Flow) -> float:
        """Under a heavier load."""
        return super().after(charge_j, time_s, flow._replace(load_w=1.5 * flow.load_w))


def test_a_users_own_battery_model_is_always_asked() -> None:
    fields = {"capacity_wh": 10.0, "charge_w": 5.0}
    assert falls_straight(Tapered.model_validate(fields))
    assert not falls_straight(Cold.model_validate(fields))
    rounds, _ = live(group(battery=Cold.model_validate(fields)), rounds=2, round_interval_s=3600.0)
    assert rounds[1].soc_start[0] == pytest.approx(1 - 1.5 * (130 + 3586) / 36_000)


def test_a_large_fleet_tells_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty phones, told in parts of twenty: while they are built, then while they live up to the last round."""
    monkeypatch.setattr(world, "PART", 20)
    monkeypatch.setattr(lookahead, "PART", 20)
    told: list[tuple[float, float | None]] = []
    made = config({}, rounds=3)
    times: list[float] = []
    for _ in World(made, None, lambda frac, to_s: told.append((frac, to_s))).rounds(times.append):
        pass
    last_start_s = 2 * made.server.round_interval_s
    assert told == [(0.4, None), (0.8, None), (0.4, last_start_s), (0.8, last_start_s)]
    assert len(times) == 3
