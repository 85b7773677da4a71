"""Statistics, estimates and reports of a fit: right on fleets whose truth is known, and clear about bad input."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from fdsim.cli.fleet import app
from fdsim.devices.config.fleet import DeviceGroup
from fdsim.devices.config.profiles import profile, sources
from fdsim.devices.fitting.calibrate import Plan
from fdsim.devices.fitting.estimate import _power_spread, first_estimate, halves
from fdsim.devices.fitting.fit import fit
from fdsim.devices.fitting.fleet_log import as_available, fleet_log
from fdsim.devices.fitting.goodness import OF_FEW, Row, goodness
from fdsim.devices.fitting.lost_contact import loose_plug
from fdsim.devices.fitting.statistics import hour_distance, ks_distance, pair_lifts, record, statistics
from fdsim.errors import InputError, ScenarioError, TraceError
from fdsim.rng import stream
from fdsim.trace import Cause, open_trace, plain_round, write_trace
from fdsim.trace.availability import Observed, observe, write_availability

HOUR = 3600.0


def phone(name: str = "a", **states: list[list[float]]) -> Observed:
    """A phone observed for two days; hours of each state."""
    found = {state: np.array(hours).reshape(-1, 2) * HOUR for state, hours in states.items()}
    levels = np.array([[0.0, 0.5], [10 * HOUR, 0.2], [12 * HOUR, 1.0]])
    return observe(name, (0.0, 48 * HOUR), found, name, levels=levels)


def test_statistics_of_a_phone_by_hand() -> None:
    """Two days: charging 10–12 h and 34–36 h (interrupted for a minute), idle 0–11 h and 24–35 h, Wi-Fi the first day."""
    seen = phone(
        charging=[[10, 12], [34, 35], [35 + 1 / 60, 36]],
        idle=[[0, 11], [24, 35]],
        wifi=[[0, 24]],
        cellular=[],
    )
    found = statistics([record(seen)])
    on = (4 - 1 / 60) / 48
    assert found["charging"] == pytest.approx(on)
    assert found["plug-ins a day"] == 1.0
    assert found["plug-in level, median"] == pytest.approx(0.6)
    assert found["full battery"] == pytest.approx(36 / 48)
    assert found["screen sessions a day"] == 1.0
    assert found["P(idle | charging)"] == pytest.approx(2 / (4 - 1 / 60))
    assert found["availability"] == pytest.approx(1 / 48)
    lifts = pair_lifts([record(seen)])
    assert lifts["lift, charging · Wi-Fi"] == pytest.approx((2 / 48) / (on * 0.5))
    assert lifts["lift, charging · idle"] == pytest.approx((2 / 48) / (on * 22 / 48))
    assert lifts["lift, Wi-Fi · idle"] == pytest.approx((11 / 48) / (22 / 48 * 0.5))
    assert found["joint lift"] == pytest.approx((1 / 48) / (on * (22 / 48) * 0.5))
    assert found["leaves within 1200 s"] == pytest.approx(1200 / 3600)


def test_ks_distance() -> None:
    assert ks_distance(np.arange(10.0), np.arange(10.0)) == 0.0
    assert ks_distance(np.zeros(5), np.ones(5)) == 1.0
    assert ks_distance(np.array([1.0, 2.0]), np.array([2.0, 3.0])) == 0.5


def test_distance_of_hour_profiles_is_one_of_shapes() -> None:
    """Two days: eligible all night or all day. Shape of each 2 for half of the hours, 0 for the others: 2 apart."""
    night, day = (
        [record(phone(idle=hours, charging=hours, wifi=hours))]
        for hours in ([[0, 12], [24, 36]], [[12, 24], [36, 48]])
    )
    rare = [record(phone(idle=[[0, 12]], charging=[[0, 12]], wifi=[[0, 12]]))]
    assert hour_distance(night, day) == 2.0
    assert hour_distance(night, night) == hour_distance(night, rare) == 0.0
    assert np.isnan(hour_distance(night, [record(phone(idle=[], charging=[], wifi=[]))]))


def test_a_distance_that_halves_cannot_tell_is_held_to_the_floor() -> None:
    """Only one of twelve phones has sessions: no two halves have any to compare."""
    phones = [record(phone(idle=[], charging=[[0, 1]], wifi=[])) for _ in range(11)]
    phones.append(record(phone(idle=[[0, 30]], charging=[[0, 30]], wifi=[[0, 30]])))
    rows = {row.statistic: row for row in goodness(phones, [phones], stream(1), resamples=5)}
    assert np.isnan(rows["KS eligible"].real)
    assert (rows["KS eligible"].high, rows["KS eligible"].good) == (0.10, True)
    assert rows["hour profile"].high == 0.15


def test_a_fleet_fits_itself_and_not_another() -> None:
    fleet = {
        name: [
            record(log)
            for log in fleet_log(DeviceGroup.model_validate({"profile": name, "count": 40}), 3, days=3)
        ]
        for name in ("flash2020", "us_nightly")
    }
    own = goodness(fleet["flash2020"], [fleet["flash2020"]], stream(1), resamples=40)
    assert all(row.good for row in own if row.statistic != "fullest : emptiest hour")
    other = goodness(fleet["flash2020"], [fleet["us_nightly"]], stream(1), resamples=40)
    assert sum(not row.good for row in other) > 8
    assert isinstance(own[0], Row)


@pytest.mark.slow
def test_the_interval_of_what_few_phones_distort_holds_the_truth() -> None:
    """25 phones of a fleet, called real, against the whole fleet: swing and spreads are good in most draws.

    Without the correction the swing is in its interval in half of them: phones that are drawn again swing more than those
    they are drawn from, so that the interval of a bootstrap lies above the truth.
    """
    group = DeviceGroup.model_validate({"profile": "flash2020", "count": 400})
    fleet, rng = [record(log) for log in fleet_log(group, 11, days=5)], stream(12)
    held = dict.fromkeys(OF_FEW, 0)
    for draw in range(20):
        real = [fleet[i] for i in rng.permutation(len(fleet))[:25]]
        for row in goodness(real, [fleet], stream(13, draw), resamples=100):
            if row.statistic in OF_FEW:
                held[row.statistic] += row.low <= row.simulated <= row.high
    assert min(held.values()) >= 15, held


def test_what_few_phones_distort_is_that_of_few_on_either_side() -> None:
    """The swing of 25 phones of a fleet is more than that of all; the real value lies in its own interval."""
    group = DeviceGroup.model_validate({"profile": "flash2020", "count": 150})
    fleet = [record(log) for log in fleet_log(group, 11, days=4)]
    real = fleet[:25]
    swing = next(
        row for row in goodness(real, [fleet], stream(1), resamples=60) if row.statistic == OF_FEW[0]
    )
    assert swing.simulated > 1.2 * statistics(fleet)[OF_FEW[0]]
    assert swing.low < swing.real < swing.high


def test_how_much_phones_differ_in_what_they_draw() -> None:
    """Where the mean phone loses 20 %, two lose 20 and 80 %; a third loses 2 %, which says nothing: ln sd of 1 : 4."""
    lost, expected, whose = np.array([0.1, 0.3, 0.1, 0.01]), np.full(4, 0.2), np.array([0.0, 1.0, 1.0, 2.0])
    expected[1:3] = 0.1
    assert _power_spread(lost, expected, whose) == 0.0  # The first has lost too little, too.
    assert _power_spread(2 * lost, expected, whose) == pytest.approx(math.log(4) / 2, abs=0.01)


def test_the_power_spread_of_a_fleet_is_found_again() -> None:
    found = {}
    for spread in (0.0, 0.6):
        group = DeviceGroup.model_validate(
            {"profile": "flash2020", "count": 60, "power": {"device_ln_sd": spread}}
        )
        found[spread] = first_estimate(fleet_log(group, 6, days=5))["power"]["device_ln_sd"]
    assert found == pytest.approx({0.0: 0.0, 0.6: 0.6}, abs=0.08)


def test_halves_are_disjoint_and_alike() -> None:
    group = DeviceGroup.model_validate({"profile": "flash2020", "count": 30})
    logs = fleet_log(group, 4, days=2)
    fitting, test = halves(logs, stream(2))
    assert sorted(fitting + test) == list(range(30))
    assert halves(logs, stream(2)) == (fitting, test)
    share = [statistics([record(logs[i]) for i in half])["charging"] for half in (fitting, test)]
    assert share[0] == pytest.approx(share[1], rel=0.35)


def test_phones_are_logged_in_turn_for_as_long_as_the_real_ones() -> None:
    group = DeviceGroup.model_validate({"profile": "flash2020", "count": 3})
    assert [log.span_s / (24 * HOUR) for log in fleet_log(group, 1, days=(1.0, 0.5))] == [1.0, 0.5, 1.0]


def test_how_seldom_wifi_begins_with_the_screen_off() -> None:
    """Eight hours off Wi-Fi with the screen on and four sessions begun; 24 hours with it off and three begun: 1/4."""
    lit = [[2, 3], [6, 9], [10, 14]]
    starts = [3 - 0.1, 7, 8, 10.5, 16, 20, 30]
    seen = phone(
        idle=[[0, 2], [3, 6], [9, 10], [14, 48]],
        wifi=[[start, start + 0.05] for start in starts],
        charging=[[1, 2]],
        cellular=[],
    )
    off_h = 48 - sum(b - a for a, b in lit)
    expected = (3 / off_h) / (4 / (48 - off_h))
    assert first_estimate([seen] * 2)["connectivity"]["idle_wifi_frac"] == pytest.approx(expected, abs=0.02)


def test_how_chargers_lose_contact_by_hand() -> None:
    """Of ten charges five are interrupted: three once, for 10 s after 100 s, and two three times; a phone never charged."""
    whole = [[k * HOUR, k * HOUR + 1000] for k in range(5)]
    once = [[5 * HOUR, 5 * HOUR + 100], [5 * HOUR + 110, 5 * HOUR + 1000]]
    thrice = [[7 * HOUR + 110 * k, 7 * HOUR + 110 * k + 100] for k in range(4)]
    charging = [np.array(whole + once), np.array(once), np.array(once), *[np.array(thrice)] * 2]
    assert loose_plug(charging) == {}  # Nine losses are too few.
    found = loose_plug([*charging * 3, np.empty((0, 2))])["loose_plug"]
    assert found["frac"] == 0.5
    assert found["again_frac"] == pytest.approx(1 - 5 / 9, abs=0.01)
    assert (found["contact_median_s"], found["lost_median_s"]) == (100.0, 10.0)
    assert (found["contact_ln_sd"], found["lost_ln_sd"]) == (0.0, 0.0)


def test_the_loose_plug_of_a_fleet_is_found_again() -> None:
    """Charges are long against the time that contact holds, so hardly any is over before contact is lost."""
    plug = {"frac": 0.3, "again_frac": 0.6, "contact_median_s": 60.0, "contact_ln_sd": 1.0, "lost_ln_sd": 0.5}
    usage = {"loose_plug": plug, "charge": {"median_s": 20_000.0}}
    group = DeviceGroup.model_validate({"profile": "fedscale", "count": 60, "usage": usage})
    logs = [as_available(log) for log in fleet_log(group, 6, days=6)]
    found = first_estimate(logs)["usage"]["loose_plug"]
    assert found["frac"] == pytest.approx(0.3, abs=0.06)
    assert found["again_frac"] == pytest.approx(0.6, abs=0.06)
    assert found["contact_median_s"] == pytest.approx(60.0, rel=0.15)
    assert found["lost_median_s"] == pytest.approx(10.0, rel=0.15)


def test_hours_of_devices_in_many_time_zones_are_those_of_like() -> None:
    """The clock of their logs is nobody's own: how often they plug in is fitted, when they do is not."""
    group = DeviceGroup.model_validate({"profile": "fedscale", "count": 20})
    logs = [as_available(log) for log in fleet_log(group, 7, days=4)]
    plan = Plan(devices=10, turns=1)
    by_hour = [
        np.array(fit(logs, "here", like=like, plan=plan).profile["usage"]["plug_in_per_hour"])
        for like in ("fedscale", "midrange_phone")
    ]
    shape = np.array(profile("fedscale")["usage"]["plug_in_per_hour"])
    assert by_hour[0] / by_hour[0].mean() == pytest.approx(shape / shape.mean(), rel=0.02)
    assert np.std(by_hour[1] / by_hour[1].mean() - shape / shape.mean()) > 0.1


def test_a_fit_to_all_phones_reports_on_the_same(tmp_path: Path) -> None:
    logs = fleet_log(DeviceGroup.model_validate({"profile": "flash2020", "count": 12}), 5, days=2)
    found = fit(logs, "here", plan=Plan(devices=10, turns=1), all_phones=True)
    assert found.fitted_to == len(found.test) == 12


@pytest.mark.parametrize(
    ("phones", "problem"),
    [
        ([phone(charging=[[1, 2]], idle=[[1, 2]], wifi=[[1, 2]])] * 4, "4 phones are too few"),
        ([phone(charging=[], idle=[[1, 2]], wifi=[[1, 2]])] * 12, "no phone was ever charging"),
        ([phone(charging=[[1, 2]], idle=[], wifi=[[1, 2]])] * 12, "ever idle: the series is constant"),
        (
            [phone(charging=[[0, 48]], idle=[[1, 2]], wifi=[[1, 2]])] * 12,
            "always charging: the series is constant",
        ),
    ],
)
def test_logs_that_cannot_be_fitted_are_refused(phones: list[Observed], problem: str) -> None:
    with pytest.raises(TraceError, match=problem):
        fit(phones, "here", plan=Plan(devices=10, turns=1))


def test_fit_writes_a_profile_that_a_fleet_can_name(tmp_path: Path) -> None:
    logs = fleet_log(DeviceGroup.model_validate({"profile": "flash2020", "count": 24}), 5, days=3)
    trace, out, page = tmp_path / "log.parquet", tmp_path / "mine.toml", tmp_path / "mine.html"
    write_availability(trace, logs, "test")
    small = ["--turns", "1", "--devices", "12", "--page", str(page)]
    result = CliRunner().invoke(app, ["fit", str(trace), "--out", str(out), *small], catch_exceptions=False)
    assert result.exit_code == 0
    assert "statistics and distances are good" in result.output
    assert "calibration, turn 1 of 1" in result.output
    assert {"statistic", "is_distance", "real", "low", "high", "simulated", "good"} == set(
        pq.read_table(tmp_path / "mine.fit.parquet").column_names
    )
    assert "<svg" in page.read_text()
    assert profile(str(out))["usage"]["kind"] == "habits"
    assert sources(str(out))["battery"] == "fitted to log.parquet [D]"
    assert sources(str(out))["low_soc"].endswith("not from the log [E]")
    group = DeviceGroup.model_validate({"profile": str(out), "count": 2})
    assert len(fleet_log(group, 1, days=1)) == 2
    with pytest.raises(InputError, match="already exists"):
        CliRunner().invoke(app, ["fit", str(trace), "--out", str(out)], catch_exceptions=False)
    with pytest.raises(ScenarioError, match="no file"):
        profile(str(tmp_path / "none.toml"))


def test_only_what_was_fitted_is_called_so(tmp_path: Path) -> None:
    """By dotted key: what estimates or calibration gave; what the fit set itself; what it took over from another profile."""
    logs = fleet_log(DeviceGroup.model_validate({"profile": "flash2020", "count": 24}), 5, days=3)
    said = {}
    for name, seen in {"flash": logs, "fedscale": [as_available(log) for log in logs]}.items():
        trace, out = tmp_path / f"{name}.parquet", tmp_path / f"{name}.toml"
        write_availability(trace, seen, "test")
        words = ["fit", str(trace), "--out", str(out), "--turns", "1", "--devices", "10"]
        CliRunner().invoke(app, words, catch_exceptions=False)
        said[name] = sources(str(out))
        DeviceGroup.model_validate({"profile": str(out), "count": 1})
    flash, fedscale = said["flash"], said["fedscale"]
    chosen, fitted = "chosen by fdsim fleet fit, not from the log [E]", "fitted to flash.parquet [D]"
    for key in (
        "connectivity.home_effect",
        "connectivity.roam_frac",
        "battery.taper_soc",
        "battery.capacity_wh",
        "habits.sleep_hour",
        "usage.need_soc",
        "usage.out_plug_frac",
    ):
        assert flash[key] == chosen
    for key in ("battery", "power", "connectivity", "usage", "habits"):
        assert flash[key] == fitted
    for key in ("battery.floor_frac", "usage.charge", "connectivity.wifi_on", "habits.shared_frac"):
        assert key not in flash
    assert fedscale["habits"] == fedscale["connectivity"] == chosen
    assert fedscale["usage"] == "fitted to fedscale.parquet [D]"
    assert fedscale["usage.out_plug_frac"] == chosen
    assert fedscale["battery"] == sources("budget_phone")["battery"]


def test_a_changed_value_does_not_keep_the_source_of_the_old_one() -> None:
    assert "battery.floor_frac" in sources("budget_phone")
    assert "battery.floor_frac" not in sources("flash2020")
    assert sources("flash2020")["battery.taper_soc"] == sources("budget_phone")["battery.taper_soc"]


def test_without_battery_readings_the_battery_is_that_of_like(tmp_path: Path) -> None:
    logs = fleet_log(DeviceGroup.model_validate({"profile": "flash2020", "count": 24}), 5, days=2)
    trace, out = tmp_path / "log.parquet", tmp_path / "mine.toml"
    write_availability(trace, [replace(log, levels=np.empty((0, 2))) for log in logs], "test")
    small = ["--like", "midrange_phone", "--turns", "1", "--devices", "10"]
    result = CliRunner().invoke(app, ["fit", str(trace), "--out", str(out), *small], catch_exceptions=False)
    assert result.exit_code == 0
    for key in ("low_soc", "initial_soc", "battery"):
        assert profile(str(out))[key] == profile("midrange_phone")[key]
        assert sources(str(out)).get(key) == sources("midrange_phone").get(key)
    assert sources(str(out))["usage"] == "fitted to log.parquet [D]"


def test_fit_says_what_it_was_given_instead_of_a_log(tmp_path: Path) -> None:
    rounds, toml, torn = tmp_path / "rounds.parquet", tmp_path / "mine.toml", tmp_path / "torn.parquet"
    write_trace(rounds, [plain_round(0, np.ones(6, dtype=bool), 60.0, Cause.scripted)])
    toml.write_text('name = "mine"')
    torn.write_text("PAR1")
    for given, like, problem in (
        (rounds, "flash2020", r"rounds\.parquet: a trace of rounds, not an availability log"),
        (toml, "flash2020", r"mine\.toml: a TOML file"),
        (torn, "flash2020", r"torn\.parquet: not an availability file"),
        (rounds, "phone", "^--like: no profile called 'phone'.*fdsim list profiles"),
    ):
        words = ["fit", str(given), "--like", like, "--out", str(tmp_path / "out.toml")]
        with pytest.raises(InputError, match=problem):
            CliRunner().invoke(app, words, catch_exceptions=False)


def test_participation_says_how_a_log_is_replayed(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    write_availability(path, [phone(charging=[[1, 2]], idle=[[1, 2]], wifi=[[1, 2]])], "test")
    with pytest.raises(
        TraceError, match=r'an imported log of devices.*kind = "replay", path = ".*log\.parquet"'
    ):
        open_trace(path)
