"""A local round is a race: every way to lose it, at its own time, with phase, progress, energy and bytes.

The plain timeline of one device, unless a test says otherwise (s): check in 0, download 0–2, train 2–12, upload 12–14.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fdsim.devices.config.outages import Cell, Outage
from fdsim.devices.config.server import Server
from fdsim.devices.config.simulation import SimulationConfig
from fdsim.devices.engine.world import simulate
from fdsim.errors import RunError
from fdsim.trace import Network, Outcome, TraceRound
from tests.devices.tiny import Habit, Link, ending, group, live, workload


def only(made: list[TraceRound]) -> TraceRound:
    assert len(made) == 1
    return made[0]


def test_an_undisturbed_round_and_its_whole_log() -> None:
    """0 download, 2 train, 12 upload, 14 done: 4 W, 10 W, 4 W over an idle watt."""
    rounds, log = live(group())
    made = only(rounds)
    assert ending(made) == ("completed", "upload", 14.0)
    assert (made.download_s[0], made.train_s[0], made.upload_s[0]) == pytest.approx((2, 10, 2))
    assert made.energy_j[0] == pytest.approx(2 * 5 + 10 * 11 + 2 * 5)
    assert (made.bytes_down[0], made.bytes_up[0], made.progress[0]) == (2_000_000, 2_000_000, 1.0)
    assert made.soc_end[0] == pytest.approx(1 - 130 / 36_000)
    assert (made.round_start_s, made.round_end_s) == (0.0, 14.0)
    assert [(t, what, round(value, 6)) for t, _, what, value in log] == [
        (0.0, "link", 1.0),
        (0.0, "screen", 0.0),
        (0.0, "charger", 0.0),
        (0.0, "power", 1.0),
        (0.0, "low", 0.0),
        (0.0, "load_w", 1.0),
        (0.0, "soc", 1.0),
        (0.0, "check_in", 0.0),
        (0.0, "download", 0.0),
        (0.0, "load_w", 5.0),
        (0.0, "soc", 1.0),
        (2.0, "train", 0.0),
        (2.0, "load_w", 11.0),
        (2.0, "soc", round(1 - 10 / 36_000, 6)),
        (12.0, "upload", 0.0),
        (12.0, "load_w", 5.0),
        (12.0, "soc", round(1 - 120 / 36_000, 6)),
        (14.0, "load_w", 1.0),
        (14.0, "soc", round(1 - 130 / 36_000, 6)),
        (14.0, "completed", 0.0),
    ]


CHARGING = {"requires_charging": True, "requires_unmetered": False}
IDLE = {"requires_idle": True, "requires_unmetered": False}
UNMETERED = {"requires_unmetered": True}
IN = Habit(charger_times=((True, 1e9),))


@pytest.mark.parametrize(
    ("device", "rule", "expected"),
    [
        ({"connectivity": Link(timetable=(("none", 1e9),))}, {}, ("offline", "check_in", 0.0)),
        ({"connectivity": Link(timetable=(("cellular", 1e9),))}, UNMETERED, ("metered", "check_in", 0.0)),
        (
            {"connectivity": Link(timetable=(("cellular", 1e9),))},
            {"requires_unmetered": False},
            ("completed", "upload", 14.0),
        ),
        (
            {"connectivity": Link(timetable=(("wifi", 1.0), ("none", 1e9)))},
            {},
            ("link_lost", "download", 1.0),
        ),
        (
            {"connectivity": Link(timetable=(("wifi", 5.0), ("none", 1e9)))},
            {"requires_unmetered": False},
            ("link_lost", "upload", 12.0),
        ),
        (
            {"connectivity": Link(timetable=(("wifi", 5.0), ("none", 1e9)))},
            UNMETERED,
            ("link_lost", "train", 5.0),
        ),
        (
            {"connectivity": Link(timetable=(("wifi", 5.0), ("cellular", 1e9)))},
            UNMETERED,
            ("metered", "train", 5.0),
        ),
        (
            {"connectivity": Link(timetable=(("wifi", 13.0), ("none", 1e9)))},
            {},
            ("link_lost", "upload", 13.0),
        ),
        ({}, CHARGING, ("unplugged", "check_in", 0.0)),
        ({"usage": IN}, CHARGING, ("completed", "upload", 14.0)),
        ({"usage": Habit(charger_times=((True, 6.0), (False, 1e9)))}, CHARGING, ("unplugged", "train", 6.0)),
        ({"usage": Habit(screen_times=((True, 1e9),))}, IDLE, ("in_use", "check_in", 0.0)),
        ({"usage": Habit(screen_times=((False, 7.0), (True, 1e9)))}, IDLE, ("in_use", "train", 7.0)),
        ({"usage": Habit(screen_times=((False, 7.0), (True, 1e9)))}, {}, ("completed", "upload", 14.0)),
        ({"initial_soc": [0.1, 0.1], "low_soc": 0.15}, {}, ("battery_low", "check_in", 0.0)),
        ({"initial_soc": [0.1, 0.1]}, {"min_soc": 0.2}, ("battery_low", "check_in", 0.0)),
        ({"initial_soc": [0.0, 0.0]}, {}, ("battery_empty", "check_in", 0.0)),
    ],
)
def test_every_lapse_ends_the_round_at_its_own_time(
    device: dict[str, Any], rule: dict[str, Any], expected: tuple[str, str, float]
) -> None:
    rounds, _ = live(group(**device), eligibility={"requires_unmetered": False, **rule})
    assert ending(only(rounds)) == expected


def test_training_can_bring_the_battery_low() -> None:
    """36 kJ full, low at 50 %: 18 055 J at the start; 10 J for the download, 45 J of training at 11 W."""
    rounds, log = live(group(initial_soc=[18_055 / 36_000] * 2, low_soc=0.5))
    made = only(rounds)
    assert ending(made) == ("battery_low", "train", round(2 + 45 / 11, 6))
    assert made.progress[0] == pytest.approx(0.45 / 1.1, rel=1e-6)
    assert made.bytes_up[0] == 0
    assert np.isnan(made.upload_s[0])
    assert [what for _, _, what, value in log if what == "low" and value] == ["low"]


def test_training_can_kill_a_phone() -> None:
    """55 J at the start: the download takes 10 J, training empties the rest after 45 / 11 s."""
    rounds, log = live(group(initial_soc=[55 / 36_000] * 2), rounds=2, round_interval_s=100.0)
    assert ending(rounds[0]) == ("battery_empty", "train", round(2 + 45 / 11, 6))
    assert ending(rounds[1]) == ("battery_empty", "check_in", 100.0)
    assert rounds[0].soc_end[0] == 0.0
    assert [(round(t, 6), value) for t, _, what, value in log if what == "power"][1:] == [
        (round(2 + 45 / 11, 6), 0.0)
    ]


def test_an_empty_phone_comes_back_when_it_is_charged() -> None:
    """Charging from 50 s on at 20 W: 3 % of 36 kJ are 1080 J, 54 s."""
    habit = Habit(charger_times=((False, 50.0), (True, 1e9)))
    rounds, log = live(
        group(initial_soc=[0.0, 0.0], usage=habit, boot_soc=0.03), rounds=3, round_interval_s=80.0
    )
    assert [ending(made)[0] for made in rounds] == ["battery_empty", "battery_empty", "completed"]
    assert [t for t, _, what, value in log if what == "power" and value] == [pytest.approx(104.0)]


def test_an_owner_tops_up_a_nearly_empty_phone() -> None:
    """At 1 W idle from 10 % to 5 %: 1800 s; then 19 W net up to 8 %: 1080 / 19 s."""
    habit = Habit(top_up_soc=0.05, top_up_to_soc=0.08)
    _, log = live(
        group(initial_soc=[0.1, 0.1], usage=habit), rounds=2, round_interval_s=3600.0, eligibility=CHARGING
    )
    found = [(round(t, 3), value) for t, _, what, value in log if what == "charger"]
    assert found[:3] == [(0.0, 0.0), (1800.0, 1.0), (round(1800 + 1080 / 19, 3), 0.0)]


def test_the_deadline() -> None:
    rounds, _ = live(group(), deadline_s=7.0)
    assert ending(only(rounds)) == ("deadline", "train", 7.0)
    assert only(rounds).progress[0] == pytest.approx(0.5)
    assert only(rounds).round_end_s == 7.0


def test_work_done_at_the_deadline_counts_and_comes_before_a_lapse() -> None:
    """All at 14 s: the upload ends, the link goes, the deadline strikes."""
    rounds, _ = live(group(connectivity=Link(timetable=(("wifi", 14.0), ("none", 1e9)))), deadline_s=14.0)
    assert ending(only(rounds)) == ("completed", "upload", 14.0)


def test_a_lapse_comes_before_the_deadline() -> None:
    link = Link(timetable=(("wifi", 13.0), ("none", 1e9)))
    rounds, _ = live(group(connectivity=link), deadline_s=13.0)
    assert ending(only(rounds)) == ("link_lost", "upload", 13.0)


def test_a_pause_waits_and_goes_on() -> None:
    """The screen is on from 5 to 25 s: nine seconds of training, a pause of 20, done at 34."""
    habit = Habit(screen_times=((False, 5.0), (True, 20.0), (False, 1e9)))
    rounds, _ = live(group(usage=habit), eligibility=IDLE, on_lapse="pause")
    made = only(rounds)
    assert ending(made) == ("completed", "upload", 34.0)
    assert made.energy_j[0] == pytest.approx(130.0)
    late, _ = live(group(usage=habit), eligibility=IDLE, on_lapse="pause", deadline_s=20.0)
    assert ending(only(late)) == ("in_use", "train", 20.0)
    assert only(late).progress[0] == pytest.approx(0.3)


def test_a_new_session_changes_rate_and_shakes_hands_again() -> None:
    """1 s of handshake, then 1 of 2 s; at 2 s cellular: 1 s of handshake, then the second half."""
    link = Link(timetable=(("wifi", 2.0), ("cellular", 1e9)), rtt_s=1.0)
    rounds, _ = live(group(connectivity=link, handshakes=1))
    assert only(rounds).download_s[0] == pytest.approx(4.0)
    assert only(rounds).energy_j[0] == pytest.approx(2 * 5 + 2 * 6 + 10 * 11 + 3 * 6)
    assert only(rounds).network[0] == Network.wifi


def test_throttling_and_a_screen_slow_the_training() -> None:
    """Four seconds at full speed, then half: 4 + 12 s; with the screen on half of that."""
    compute = {
        "kind": "flops",
        "gflops": 1.0,
        "sustained_frac": 0.5,
        "throttle_after_s": 4.0,
        "screen_load_frac": 0.5,
    }
    rounds, _ = live(group(compute=compute))
    assert only(rounds).train_s[0] == pytest.approx(16.0)
    busy, _ = live(group(compute=compute, usage=Habit(screen_times=((True, 1e9),))))
    assert only(busy).train_s[0] == pytest.approx(4 + (10 - 2) / 0.25)


def test_a_crash_loses_the_work_and_the_device_recovers() -> None:
    crash = {"every_s": 20.0, "recovers_s": 30.0}
    rounds, log = live(group(count=40, crash=crash), rounds=20, round_interval_s=50.0)
    causes = [ending(made, client) for made in rounds for client in range(40)]
    phases = {phase for cause, phase, _ in causes if cause == "crashed"}
    assert phases == {"check_in", "download", "train", "upload"}
    assert any(cause == "completed" for cause, _, _ in causes)
    crashes = {(t, client) for t, client, what, value in log if what == "crashed" and value}
    ends = {
        (made.end_s[c], c)
        for made in rounds
        for c in range(40)
        if ending(made, c)[0] == "crashed" and ending(made, c)[1] != "check_in"
    }
    assert ends <= crashes


def test_a_power_cut_hits_a_whole_site_and_nobody_else() -> None:
    """From 5 to 65 s the site has neither power nor Wi-Fi."""
    fleet = (group(site="home", usage=IN, count=2), group(usage=IN))
    cut = Outage(site="home", takes=("power", "wifi"), at_s=(5.0,), lasts_s=60.0)
    rounds, log = live(fleet, outages=(cut,), eligibility=CHARGING, rounds=2, round_interval_s=70.0)
    assert [ending(rounds[0], c) for c in range(3)] == [("outage", "train", 5.0)] * 2 + [
        ("completed", "upload", 14.0)
    ]
    assert [ending(rounds[1], c)[0] for c in range(3)] == ["completed"] * 3
    assert [(t, c, v) for t, c, what, v in log if what == "outage"] == [
        (5.0, 0, 1.0),
        (5.0, 1, 1.0),
        (65.0, 0, 0.0),
        (65.0, 1, 0.0),
    ]


def test_random_outages_are_shared() -> None:
    storm = Outage(every_s=40.0, lasts_s=20.0)
    rounds, log = live(group(count=3), outages=(storm,), rounds=30, round_interval_s=30.0)
    by_client = [[(t, v) for t, c, what, v in log if what == "outage" and c == client] for client in range(3)]
    assert by_client[0] == by_client[1] == by_client[2] != []
    assert {ending(made)[0] for made in rounds} == {"completed", "outage"}


def test_a_cell_divides_its_bandwidth() -> None:
    """Two devices of 8 Mbit/s under a cell of 8: 2 s of download take 4, 2 s of upload take 4."""
    cell = Cell(name="tower", down_bps=8e6, up_bps=8e6)
    rounds, _ = live(group(count=2, cell="tower"), cells=(cell,))
    assert only(rounds).download_s.tolist() == pytest.approx([4.0, 4.0])
    assert only(rounds).upload_s.tolist() == pytest.approx([4.0, 4.0])
    alone, _ = live(group(cell="tower"), cells=(cell,))
    assert only(alone).download_s[0] == pytest.approx(2.0)


def test_a_device_that_leaves_a_cell_gives_its_portion_back() -> None:
    """Client 1 loses its link after 2 s, so client 0 had half for 2 s and all for 1 more."""
    cell = Cell(name="tower", down_bps=8e6, up_bps=8e6)
    gone = Link(timetable=(("wifi", 2.0), ("none", 1e9)))
    rounds, _ = live((group(cell="tower"), group(cell="tower", connectivity=gone)), cells=(cell,))
    assert only(rounds).download_s[0] == pytest.approx(3.0)
    assert ending(only(rounds), 1) == ("link_lost", "download", 2.0)
    assert only(rounds).bytes_down[1] == 1_000_000


def test_over_selection_closes_when_the_target_has_reported() -> None:
    """Three are selected for two reports; the slowest is told to stop at 24 s, while it trains."""
    speeds = [{"kind": "flops", "gflops": g} for g in (1.0, 0.5, 0.1)]
    fleet = tuple(group(compute=compute) for compute in speeds)
    rounds, _ = live(fleet, selection={"kind": "random", "clients_per_round": 2}, over_selection=1.5)
    made = only(rounds)
    assert [ending(made, c) for c in range(3)] == [
        ("completed", "upload", 14.0),
        ("completed", "upload", 24.0),
        ("deadline", "train", 24.0),
    ]
    assert made.progress[2] == pytest.approx(0.22)
    assert made.round_end_s == 24.0


def test_a_round_without_its_quorum_is_abandoned() -> None:
    off = Link(timetable=(("none", 1e9),))
    rounds, _ = live((group(), group(connectivity=off)), min_reports_frac=0.8)
    assert [ending(only(rounds), c)[0] for c in range(2)] == ["abandoned", "offline"]
    kept, _ = live((group(), group(connectivity=off)), min_reports_frac=0.5)
    assert ending(only(kept))[0] == "completed"


def test_an_empty_round_is_recorded() -> None:
    off = Link(timetable=(("none", 100.0), ("wifi", 1e9)))
    rounds, _ = live(group(connectivity=off), rounds=2, round_interval_s=120.0)
    assert len(rounds[0].completed) == 0
    assert rounds[0].round_end_s == 0.0
    assert len(rounds[1].completed) == 1


def test_selection_among_the_eligible_selects_nobody_else() -> None:
    off = Link(timetable=(("none", 1e9),))
    fleet = (group(connectivity=off, count=5), group(count=3))
    pick = {"kind": "random", "clients_per_round": 2, "pool": "eligible"}
    rounds, _ = live(fleet, selection=pick, rounds=5, round_interval_s=20.0)
    for made in rounds:
        assert (made.outcome[:5] == Outcome.not_selected).all()
        assert len(made.completed) == 2


def test_a_round_that_lasts_longer_than_the_interval_delays_the_next() -> None:
    rounds, _ = live(group(), rounds=3, round_interval_s=10.0)
    assert [made.round_start_s for made in rounds] == [0.0, 14.0, 28.0]


def test_the_clock_starts_at_the_hour_it_is_told() -> None:
    link = Link(timetable=(("none", 7200.0), ("wifi", 1e9)))
    rounds, log = live(group(connectivity=link), start_hour=2.0)
    assert ending(only(rounds)) == ("completed", "upload", 7214.0)
    assert log[0][0] == 7200.0


def test_a_users_own_link_model_that_gives_nonsense_stops_the_run() -> None:
    bad = group(connectivity=Link(timetable=(("wifi", 5.0), ("none", -1.0))))
    with pytest.raises(RunError, match=r"client 0 gave a spell of -1\.0 s"):
        list(simulate(SimulationConfig((bad,), Server(), workload(1), 1, 1)))


@pytest.mark.parametrize("start_s", [1010.1, 1010.2, 1010.3, 1010.4, 1010.6, 1010.7])
def test_a_throttle_nearer_than_the_clock_can_tell_does_not_stop_time(start_s: float) -> None:
    """Above 1024 s the clock is half as fine as below, so it may fall short of the throttle by less than it can move."""
    phone = group(compute={"throttle_after_s": 20.0, "sustained_frac": 0.5})
    rounds, _ = live(phone, start_hour=start_s / 3600.0, work=workload(1, train_s=40.0))
    # 20 s at full speed, and the other half of the work at half the speed.
    assert ending(only(rounds)) == ("completed", "upload", round(start_s + 64.0, 6))
