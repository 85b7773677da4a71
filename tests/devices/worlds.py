"""Small random worlds for hypothesis: everything a scenario can say about a fleet, on a few devices and rounds."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fdsim.devices.config.fleet import DeviceGroup
from fdsim.devices.config.outages import Cell, Crash, Outage
from fdsim.devices.config.profiles import names
from fdsim.devices.config.server import Server
from fdsim.devices.config.simulation import SimulationConfig
from fdsim.devices.models.spells import Switch
from fdsim.trace.availability import observe, write_availability
from fdsim.workload import NetCost, Workload
from tests.devices.tiny import Habit, Link, group

CELL = Cell(name="a", down_bps=5e6, up_bps=2e6)
#: Where hand-written timetables change: multiples of these, so that much falls on the same instant.
STEP_S = 60.0


@cache
def log_path() -> str:
    """An availability file of three devices over a day, one of plain availability and two with all states."""
    hours = np.array([[1.0, 2.5], [5.0, 9.0], [11.0, 23.0]]) * 3600.0
    short = np.array([[0.0, 600.0], [1200.0, 1500.0], [3000.0, 80_000.0]])
    span = (0.0, 86_400.0)
    levels = np.array(
        [[0.0, 0.9], [7200.0, 0.1], [9000.0, 0.3], [30_000.0, 0.05], [50_000.0, 0.0], [60_000.0, 1.0]]
    )
    later = levels + np.array([600.0, 0.0])
    seen = [
        observe("a", span, {"available": hours}, "test", levels=levels),
        observe(
            "b",
            span,
            {"wifi": hours, "cellular": short, "idle": short, "charging": hours + 60.0},
            "test",
            levels=later,
        ),
        observe(
            "c",
            span,
            {"wifi": short, "cellular": hours, "idle": hours, "charging": short},
            "test",
            levels=levels,
        ),
    ]
    path = Path(mkdtemp(prefix="fdsim-log-")) / "log.parquet"
    write_availability(path, seen, "test")
    return str(path)


@st.composite
def profile_groups(draw: st.DrawFn) -> DeviceGroup:
    """A few devices of the library, changed in this or that."""
    name = draw(st.sampled_from(names()))
    fields: dict[str, Any] = {"profile": name, "count": draw(st.integers(1, 3))}
    fields |= draw(_around)
    if name not in ("raspberry_pi_4", "jetson_nano"):
        if draw(st.booleans()):
            fields["initial_soc"] = [draw(st.floats(0, 0.4)), draw(st.floats(0.4, 1))]
        if draw(st.booleans()):
            fields["power"] = {"device_ln_sd": 0.6}
        battery = draw(st.sampled_from(["as in the profile", "ageing", "small", "mains"]))
        if battery == "ageing":
            fade = {"cycles": 10.0, "fade_per_cycle_frac": 0.01}
            fields["battery"] = {"kind": "ageing", "capacity_wh": 3.0, "charge_w": 10.0, **fade}
        elif battery == "small":
            fields["battery"] = {
                "kind": "linear",
                "capacity_wh": 1.0,
                "charge_w": draw(st.sampled_from([2.0, 10.0])),
            }
        elif battery == "mains":
            fields["battery"] = {"kind": "mains"}
        if draw(st.booleans()):
            fields["usage"] = {"top_up_soc": 0.25, "top_up_to_soc": 0.6}
        if name in ("flash2020", "fedscale", "us_nightly") and draw(st.booleans()):
            fields["usage"] = fields.get("usage", {}) | {"loose_plug": {"frac": 1.0, "again_frac": 0.9}}
    if draw(st.integers(0, 3)) == 0:
        fields["connectivity"] = {"kind": "replay", "path": log_path()}
        if draw(st.booleans()):
            fields["usage"] = {"kind": "replay", "path": log_path()}
        if draw(st.booleans()):
            fields["battery"] = {"kind": "replay", "path": log_path()}
    return DeviceGroup.model_validate(fields)


_around = st.fixed_dictionaries(
    {
        "cell": st.sampled_from(["", "a"]),
        "site": st.sampled_from(["", "home"]),
        "crash": st.sampled_from([None, None, {"every_s": 3000.0, "recovers_s": 300.0}]),
    }
)


def _times(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A timetable that changes at multiples of STEP_S and ends with a spell longer than any test."""
    lengths = st.integers(1, 5).map(lambda steps: steps * STEP_S)
    return st.tuples(st.lists(st.tuples(values, lengths), min_size=4, max_size=10), values).map(
        lambda parts: (*parts[0], (parts[1], 1e9))
    )


@st.composite
def timetable_groups(draw: st.DrawFn) -> DeviceGroup:
    """Devices with hand-written lives in whole minutes: links, screens, chargers, levels and rounds coincide."""
    link = Link(
        timetable=draw(_times(st.sampled_from(["wifi", "wifi", "cellular", "none"]))),
        rtt_s=draw(st.sampled_from([0.0, 0.0, 0.5])),
    )
    habit = Habit(
        screen_times=draw(_times(st.booleans())),
        charger_times=draw(_times(st.booleans())),
        top_up_soc=draw(st.sampled_from([0.0, 0.25, 0.5])),
    )
    battery = {"kind": "linear", "capacity_wh": draw(st.sampled_from([0.05, 0.2, 10.0])), "charge_w": 20.0}
    kind = draw(st.sampled_from(["linear", "linear", "tapered", "ageing"]))
    if kind == "ageing":
        battery |= {"cycles": 10.0, "fade_per_cycle_frac": 0.01}
    compute = {
        "screen_load_frac": draw(st.sampled_from([0.0, 0.5])),
        "sustained_frac": draw(st.sampled_from([1.0, 0.5])),
        "throttle_after_s": draw(st.sampled_from([0.0, 30.0, 60.0])),
        "background_load_frac": draw(st.sampled_from([0.0, 0.0, 0.2])),
    }
    soc = draw(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]))
    return group(
        count=draw(st.integers(1, 3)),
        connectivity=link,
        usage=habit,
        battery=battery | {"kind": kind},
        compute=compute,
        initial_soc=[soc, soc],
        low_soc=draw(st.sampled_from([0.0, 0.15, 0.25])),
        handshakes=draw(st.sampled_from([0, 2])),
        **draw(_around),
    )


@st.composite
def servers(draw: st.DrawFn, *, times_s: tuple[st.SearchStrategy[float], st.SearchStrategy[float]]) -> Server:
    """Any server, with a deadline and an interval out of these."""
    deadline_s, interval_s = times_s
    pool = draw(st.sampled_from(["all", "eligible"]))
    selection = draw(
        st.sampled_from(
            [{"kind": "all"}, {"kind": "random", "frac": 0.5}, {"kind": "random", "clients_per_round": 2}]
        )
    )
    seldom = st.sampled_from([False, False, False, True])
    rule = dict.fromkeys(("requires_charging", "requires_unmetered", "requires_idle"), seldom)
    return Server.model_validate(
        {
            "deadline_s": draw(deadline_s),
            "round_interval_s": draw(interval_s),
            "start_hour": draw(st.sampled_from([0.0, 0.0, 0.05, 0.125, 7.5])),
            "on_lapse": draw(st.sampled_from(["abort", "pause"])),
            "over_selection": draw(st.sampled_from([1.0, 1.0, 1.5, 3.0])),
            "min_reports_frac": draw(st.sampled_from([0.0, 0.0, 0.5, 1.0])),
            "selection": {**selection, "pool": pool},
            "eligibility": {
                **draw(st.fixed_dictionaries(rule)),
                "min_soc": draw(st.sampled_from([0.0, 0.0, 0.25, 0.5])),
            },
        }
    )


@st.composite
def outages(draw: st.DrawFn) -> tuple[Outage, ...]:
    """None, one or two outages of everybody, at random or in whole minutes."""
    found = []
    for _ in range(draw(st.integers(0, 2))):
        takes = draw(
            st.sampled_from(
                [("wifi",), ("power",), ("wifi", "cellular"), ("cellular", "power"), ("wifi", "power")]
            )
        )
        when = draw(
            st.sampled_from([{"every_s": 2000.0}, {"at_s": (0.0, 180.0, 600.0)}, {"at_s": (240.0, 27_060.0)}])
        )
        length_s = draw(st.sampled_from([STEP_S, 2 * STEP_S]))
        place = draw(st.sampled_from([None, None, "home", "work"]))
        found.append(Outage(takes=takes, lasts_s=length_s, place=place, **when))
    return tuple(found)


@st.composite
def worlds(draw: st.DrawFn) -> SimulationConfig:
    """A small world: devices of the library, or with hand-written lives, or both."""
    kinds = draw(
        st.sampled_from(
            [profile_groups(), timetable_groups(), st.one_of(profile_groups(), timetable_groups())]
        )
    )
    groups = draw(st.lists(kinds, min_size=1, max_size=2))
    if all(isinstance(g.connectivity, Link) for g in groups):
        steps = st.integers(1, 6).map(lambda n: n * STEP_S)
        server = draw(servers(times_s=(steps, steps)))
        train_s = draw(st.sampled_from([20.0, 56.0, 58.0, 100.0, 170.0, 300.0]))
        moved = draw(st.sampled_from([0, 1, 2, 30]))
        # A plain device trains 1 GFLOP and moves 1 MB in a second.
        cost, bytes_moved = NetCost(1e9 / 3, 0.0, 1), moved * 1_000_000
    else:
        server = draw(servers(times_s=(st.floats(30, 1200), st.floats(100, 7200))))
        cost, bytes_moved, train_s = NetCost(3e8, 0.1, 10**6), 4_000_000, draw(st.sampled_from([50.0, 500.0]))
    total = sum(g.count for g in groups)
    work = Workload(cost, np.full(total, train_s), bytes_moved, bytes_moved)
    cell = CELL.model_copy(update={"place": draw(st.sampled_from([None, None, "home", "work"]))})
    rounds, seed = draw(st.integers(3, 8)), draw(st.integers(0, 10_000))
    return SimulationConfig(tuple(groups), server, work, rounds, seed, draw(outages()), (cell,))


class CrashTimes(Crash):
    """Crashes with a timetable."""

    every_s: float = 1.0
    recovers_s: float = 1.0
    times: tuple[tuple[bool, float], ...]

    def spells(self, rng: np.random.Generator) -> Iterator[Switch]:
        """As written."""
        yield from (Switch(*spell) for spell in self.times)


@st.composite
def minute_groups(draw: st.DrawFn) -> DeviceGroup:
    """Devices to which everything happens on the minute, to the last bit, at rest and at work.

    Whatever they do draws as much as idling, and a minute of it is a quarter or a fortieth of the charge; so charge
    levels are met on the minute too, just when links, screens, chargers, outages and crashes change.
    """
    soc = draw(st.sampled_from([0.25, 0.5, 0.75, 1.0]))
    minutes = st.integers(1, 5).map(lambda n: n * STEP_S)
    watts = 3.75
    return group(
        count=draw(st.integers(1, 2)),
        connectivity=Link(timetable=draw(_times(st.sampled_from(["wifi", "wifi", "wifi", "none"])))),
        usage=Habit(
            screen_times=draw(
                st.sampled_from([((False, 1e9),), ((False, 120.0), (True, 60.0), (False, 1e9))])
            ),
            charger_times=draw(_times(st.booleans())),
            top_up_soc=draw(st.sampled_from([0.0, 0.0, 0.25])),
        ),
        battery={
            "kind": "linear",
            "capacity_wh": draw(st.sampled_from([0.25, 2.5])),
            "charge_w": draw(st.sampled_from([7.5, 15.0])),
        },
        power=dict.fromkeys(("idle_w", "screen_w", "train_w"), watts),
        radio=dict.fromkeys(("wifi_tx_w", "wifi_rx_w", "cellular_tx_w", "cellular_rx_w"), watts),
        initial_soc=[soc, soc],
        low_soc=draw(st.sampled_from([0.0, 0.25])),
        boot_soc=draw(st.sampled_from([0.03, 0.25])),
        crash=draw(
            st.none() | minutes.map(lambda s: CrashTimes(times=((False, s), (True, STEP_S), (False, 1e9))))
        ),
    )


@st.composite
def minute_worlds(draw: st.DrawFn) -> SimulationConfig:
    """A small world in which as much as possible falls on the same instants."""
    groups = draw(st.lists(minute_groups(), min_size=1, max_size=2))
    minutes = st.integers(1, 5).map(lambda n: n * STEP_S)
    server = draw(servers(times_s=(minutes, minutes)))
    total = sum(g.count for g in groups)
    moved = draw(st.sampled_from([30, 60])) * 1_000_000
    work = Workload(
        NetCost(1e9 / 3, 0.0, 1), np.full(total, draw(st.sampled_from([60.0, 120.0]))), moved, moved
    )
    rounds, seed = draw(st.integers(3, 8)), draw(st.integers(0, 10_000))
    return SimulationConfig(tuple(groups), server, work, rounds, seed, draw(outages()))
