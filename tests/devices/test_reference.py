"""The reference model: whole traces of tiny worlds, and the engine held to it on random small worlds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from fdsim.devices.config.outages import Cell, Outage
from fdsim.devices.config.server import Server
from fdsim.devices.config.simulation import SimulationConfig
from fdsim.devices.engine.world import simulate
from fdsim.devices.reference import simulate_reference
from fdsim.errors import RunError, ScenarioError
from fdsim.inspect.reference import compare_with_reference
from fdsim.trace import TraceRound
from fdsim.workload import Workload
from tests.devices.tiny import Habit, Link, ending, group, workload
from tests.devices.worlds import minute_worlds, worlds


def lived(*fleet: Any, rounds: int = 1, work: Any = None, **fields: Any) -> list[TraceRound]:
    """The rounds of a tiny world by the reference; download 2 s, training 10 s, upload 2 s unless said otherwise."""
    return list(simulate_reference(tiny(*fleet, rounds=rounds, work=work, **fields)))


def tiny(*fleet: Any, rounds: int = 1, work: Any = None, **fields: Any) -> SimulationConfig:
    extra = {name: fields.pop(name) for name in ("outages", "cells") if name in fields}
    fields.setdefault("eligibility", {"requires_unmetered": False})
    work = work or workload(sum(g.count for g in fleet))
    return SimulationConfig(fleet, Server.model_validate(fields), work, rounds, 1, **extra)


# -- tiny worlds, each a whole trace


def test_a_round_goes_through_its_phases() -> None:
    [made] = lived(group())
    assert ending(made) == ("completed", "upload", 14.0)
    assert (made.download_s[0], made.train_s[0], made.upload_s[0]) == (2.0, 10.0, 2.0)
    # Idle 1 W, radio 4 W, training 10 W; the battery holds 36 kJ.
    assert made.energy_j[0] == 2 * 5 + 10 * 11 + 2 * 5
    assert made.soc_end[0] == pytest.approx(1 - 130 / 36_000)
    assert (made.bytes_down[0], made.bytes_up[0], made.progress[0]) == (2_000_000, 2_000_000, 1.0)


def test_each_change_ends_a_round_at_its_own_time() -> None:
    lost = Link(timetable=(("wifi", 1.0), ("none", 1e9)))
    unlucky = Link(timetable=(("none", 1e9),))
    # 36 J at 5 W, then at 11 W: empty after 2 s + 26/11 s.
    flat = {"kind": "linear", "capacity_wh": 0.01, "charge_w": 20.0}
    [made] = lived(group(connectivity=lost), group(connectivity=unlucky), group(battery=flat), group())
    assert [ending(made, client) for client in range(4)] == [
        ("link_lost", "download", 1.0),
        ("offline", "check_in", 0.0),
        ("battery_empty", "train", round(2 + 26 / 11, 6)),
        ("completed", "upload", 14.0),
    ]
    assert made.bytes_down[0] == 1_000_000
    assert made.soc_end[2] == 0.0


def test_paused_work_goes_on_where_it_stopped() -> None:
    """Download to 2 s; the screen is on from 5 s to 25 s; training ends at 32 s and the upload at 34 s."""
    looks = Habit(screen_times=((False, 5.0), (True, 20.0), (False, 1e9)))
    rule = {"requires_unmetered": False, "requires_idle": True}
    [made] = lived(group(usage=looks), on_lapse="pause", eligibility=rule)
    assert ending(made) == ("completed", "upload", 34.0)
    assert made.train_s[0] == 30.0
    [made] = lived(group(usage=looks), on_lapse="pause", eligibility=rule, deadline_s=20.0)
    assert ending(made) == ("in_use", "train", 20.0)
    [made] = lived(group(usage=looks), on_lapse="abort", eligibility=rule)
    assert ending(made) == ("in_use", "train", 5.0)


def test_work_paused_for_a_low_charge_waits_until_the_charge_is_well_above_it() -> None:
    """180 J full, 45 J at the start, low at 36 J; the charger gives 5 W, more than idling and less than any work but radio.

    Downloading takes 5 W: level to 2 s. Training takes 11 W: 36 J at 3.5 s, then 4 W up to 45 J (five points above low)
    in 2.25 s, again and again; six spells of training of 1.5 s and one of 1 s, six pauses; the upload ends at 27.5 s.
    """
    battery = {"kind": "linear", "capacity_wh": 0.05, "charge_w": 5.0, "charge_efficiency_frac": 1.0}
    always = Habit(charger_times=((True, 1e9),))
    device = group(battery=battery, usage=always, initial_soc=[0.25, 0.25], low_soc=0.2)
    config = tiny(device, on_lapse="pause", deadline_s=60.0)
    [made] = simulate_reference(config)
    assert ending(made) == ("completed", "upload", 27.5)
    assert made.train_s[0] == pytest.approx(6 * (1.5 + 2.25) + 1.0)
    hold(config)
    with pytest.raises(ScenarioError, match="which no battery reaches"):
        lived(device, on_lapse="pause", eligibility={"min_soc": 0.97})


def test_an_outage_and_a_cell_act_where_the_owner_is() -> None:
    """The owner is at home until 9 h and at work at noon; the home's outage lasts all day and its cell is slow."""
    habits = {"own_sd_h": 0.0, "day_sd_h": 0.0, "out_weekday_frac": 1.0, "leave_hour": 9.0}
    device = group(habits=habits, cell="a", battery={"kind": "mains"})
    dark = Outage(place="home", at_s=(0.0,), lasts_s=86_400.0)
    slow = Cell(name="a", place="home", down_bps=1e6, up_bps=1e6)
    twelve = {"rounds": 2, "start_hour": 6.0, "round_interval_s": 6 * 3600.0}
    made = lived(device, outages=(dark,), cells=(slow,), **twelve)
    assert [ending(r)[:2] for r in made] == [("outage", "check_in"), ("completed", "upload")]
    made = lived(device, cells=(slow,), **twelve)
    assert [r.download_s[0] for r in made] == [16.0, 2.0]
    hold(tiny(device, outages=(dark,), cells=(slow,), **twelve))


def test_at_the_same_instant_work_done_comes_before_a_lapse_and_a_lapse_before_the_deadline() -> None:
    def gone_at(t_s: float) -> Any:
        return group(connectivity=Link(timetable=(("wifi", t_s), ("none", 1e9))))

    [made] = lived(gone_at(14.0), gone_at(13.0), group(), deadline_s=14.0)
    assert [ending(made, client)[0] for client in range(3)] == ["completed", "link_lost", "completed"]
    [made] = lived(gone_at(13.0), group(), deadline_s=13.0)
    assert [ending(made, client)[0] for client in range(2)] == ["link_lost", "deadline"]
    # What changes at the instant of a check-in has changed by then.
    back = Link(timetable=(("none", 60.0), ("wifi", 1e9)))
    first, second = lived(group(connectivity=back), rounds=2, round_interval_s=60.0, deadline_s=30.0)
    assert (ending(first)[0], ending(second)[0]) == ("offline", "completed")


def test_a_cell_is_shared_and_outages_hit_all_at_once() -> None:
    """8 Mbit/s for two downloads of 2 s each: both take 4 s, and so do the uploads."""
    cell = Cell(name="a", down_bps=8e6, up_bps=8e6)
    [made] = lived(group(cell="a", count=2), cells=(cell,))
    assert [ending(made, client) for client in range(2)] == [("completed", "upload", 18.0)] * 2
    dark = Outage(at_s=(5.0, 13.0), lasts_s=3.0)
    [made] = lived(group(count=2), outages=(dark,))
    assert [ending(made, client) for client in range(2)] == [("outage", "upload", 13.0)] * 2


def test_an_over_selected_round_closes_early_and_one_without_quorum_is_abandoned() -> None:
    slow = group(compute={"gflops": 0.5})
    chosen = {"kind": "random", "clients_per_round": 1}
    [made] = lived(group(), slow, over_selection=2.0, selection=chosen)
    assert [ending(made, client) for client in range(2)] == [
        ("completed", "upload", 14.0),
        ("deadline", "train", 14.0),
    ]
    assert made.progress[1] == pytest.approx(12 / 20)
    assert made.round_end_s == 14.0
    [made] = lived(group(), slow, deadline_s=20.0, min_reports_frac=0.75)
    assert [ending(made, client)[0] for client in range(2)] == ["abandoned", "deadline"]


def test_a_round_that_overruns_delays_the_next() -> None:
    made = lived(group(compute={"gflops": 0.1}), rounds=3, deadline_s=50.0, round_interval_s=30.0)
    assert [r.round_start_s for r in made] == [0.0, 50.0, 100.0]


def test_what_cannot_be_simulated_is_refused() -> None:
    with pytest.raises(RunError, match=r"a model of the link gave a spell of 0\.0 s"):
        lived(group(connectivity=Link(timetable=(("wifi", 0.0),))))
    with pytest.raises(ScenarioError, match="devices cannot do the work"):
        lived(group(), work=workload(2))


# -- the engine agrees


def hold(config: SimulationConfig) -> None:
    """Hold the engine to the reference."""
    comparison = compare_with_reference(simulate(config), simulate_reference(config))
    assert comparison.difference is None
    assert comparison.rounds == config.rounds


CALM = {"deadline": None, "derandomize": True, "database": None, "suppress_health_check": list(HealthCheck)}


@settings(max_examples=100, **CALM)
@given(worlds())
def test_the_engine_gives_the_reference_trace(config: SimulationConfig) -> None:
    hold(config)


@settings(max_examples=100, **CALM)
@given(minute_worlds())
def test_the_engine_gives_the_reference_trace_when_everything_happens_at_once(
    config: SimulationConfig,
) -> None:
    hold(config)


@pytest.mark.slow
@settings(max_examples=1500, **CALM)
@given(worlds())
def test_the_engine_gives_the_reference_trace_on_many_worlds(config: SimulationConfig) -> None:
    hold(config)


def test_a_lapse_at_the_instant_of_the_close_is_a_lapse_in_both() -> None:
    """One report is wanted of two; it arrives at 14 s, when the link of the second is lost."""
    lost = group(connectivity=Link(timetable=(("wifi", 14.0), ("none", 1e9))), compute={"gflops": 0.5})
    both = {"over_selection": 2.0, "selection": {"kind": "random", "clients_per_round": 1}}
    rule = {"requires_unmetered": True}
    config = tiny(group(), lost, eligibility=rule, **both)
    [made] = simulate_reference(config)
    assert ending(made, 1) == ("link_lost", "train", 14.0)
    hold(config)


@pytest.mark.parametrize("kind", ["linear", "ageing"])
def test_top_ups_and_charges_that_age_the_battery_agree(kind: str) -> None:
    """The owner tops up again and again; the charger goes in and out in between, and ends a top-up."""
    battery = {"kind": kind, "capacity_wh": 0.2, "charge_w": 20.0}
    battery |= {"fade_per_cycle_frac": 0.01} if kind == "ageing" else {}
    times = tuple((on, 45.0) for _ in range(20) for on in (False, True, False))
    habit = Habit(charger_times=(*times, (False, 1e9)), top_up_soc=0.5)
    hold(tiny(group(battery=battery, usage=habit), rounds=12, round_interval_s=100.0, deadline_s=90.0))


# -- what the reference has found wrong in the engine


def test_a_phase_that_ends_as_the_round_closes_is_over() -> None:
    """One report is wanted of two; the first arrives at 14 s, when the training of the second ends."""
    both = {"over_selection": 2.0, "selection": {"kind": "random", "clients_per_round": 1}}
    work = Workload(workload(1).cost, np.array([10.0, 12.0]), 2_000_000, 2_000_000)
    config = tiny(group(), group(), work=work, **both)
    [reference] = simulate_reference(config)
    assert ending(reference, 1) == ("deadline", "upload", 14.0)
    assert compare_with_reference(simulate(config), [reference]).difference is None


def test_a_battery_does_not_age_when_the_last_spell_of_the_charger_goes_on() -> None:
    """Plugged in from 60 s on, for 600 s and then for ever: nothing happens at 660 s."""
    battery = {"kind": "ageing", "capacity_wh": 1.0, "charge_w": 20.0, "fade_per_cycle_frac": 0.01}
    habit = Habit(charger_times=((False, 60.0), (True, 600.0)))
    device = group(battery=battery, usage=habit, initial_soc=[0.2, 0.2])
    config = tiny(device, rounds=6, round_interval_s=200.0, deadline_s=100.0)
    assert compare_with_reference(simulate(config), simulate_reference(config)).difference is None
