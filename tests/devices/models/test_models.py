"""Spells, link, usage and compute models, and selections: contracts and theory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from fdsim.catalogue import MENU, NestedError, build
from fdsim.devices.config.profiles import names, profile
from fdsim.devices.config.server import Server
from fdsim.devices.config.simulation import SimulationConfig
from fdsim.devices.engine.world import simulate
from fdsim.devices.models.compute import Flops, PerSample
from fdsim.devices.models.connectivity import Bandwidth, Connectivity, HomeWifi, Mobile, OnOff, Spell
from fdsim.devices.models.selection import All, Random, Selection
from fdsim.devices.models.spells import Lengths, Switch, alternate
from fdsim.devices.models.usage_hours import Hourly, Nightly
from fdsim.devices.reference import simulate_reference
from fdsim.rng import stream
from fdsim.testing import (
    ContractError,
    StillPhone,
    check_battery,
    check_compute,
    check_connectivity,
    check_selection,
    check_usage,
)
from fdsim.trace import Network
from fdsim.workload import NetCost
from tests.devices.tiny import group, workload

CHECKS: dict[str, Callable[[Any], None]] = {
    "battery": check_battery,
    "connectivity": check_connectivity,
    "usage": check_usage,
    "compute": check_compute,
}


@pytest.mark.parametrize("family", CHECKS)
@pytest.mark.parametrize("name", names())
def test_contracts_of_every_profile(name: str, family: str) -> None:
    CHECKS[family](build(family, profile(name)[family]))


@pytest.mark.parametrize(
    ("family", "kind"),
    [(family, kind) for family in ("connectivity", "usage") for kind in MENU[family] if kind != "replay"],
)
def test_contracts_of_bare_kinds(family: str, kind: str) -> None:
    CHECKS[family](build(family, {"kind": kind}))


@pytest.mark.parametrize("selection", [All(), Random(clients_per_round=3), Random(frac=0.1)])
def test_contract_of_selections(selection: All | Random) -> None:
    check_selection(selection)


class Answers(Selection):
    """Answers what it is told to, as a faulty selection would."""

    wants: Any = 3
    answer: str = "candidates[:wanted]"

    def target(self, clients: int) -> int:
        return self.wants  # type: ignore[no-any-return]

    def select(self, candidates: np.ndarray, wanted: int, rng: np.random.Generator) -> np.ndarray:
        return eval(self.answer)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("faulty", "problem"),
    [
        (Answers(answer="candidates"), r"returned 7 clients, and at most 3 are wanted"),
        (Answers(answer="candidates < 2"), r"bool values, not the numbers of clients\. A mask"),
        (Answers(answer="candidates[:wanted] * 1.0"), "float64 values"),
        (Answers(answer="None"), "returned None"),
        (Answers(answer="[[1], [1, 2]]"), "not the numbers"),
        (Answers(answer="[1, 1]"), "client 1 twice"),
        (Answers(answer="[-1, 1]"), "client -1, who is not"),
        (Answers(answer="[1, 99]"), "client 99, who is not"),
        (Answers(wants=0), r"target\(7\) returned 0, which is not in 1\.\.7"),
        (Answers(wants=8), "returned 8"),
        (Answers(wants=0.5), "0.5, which is not an integer"),
        (Answers(wants=None), "None, which is not an integer"),
    ],
)
def test_a_selection_that_answers_wrongly_breaks_its_contract(faulty: Selection, problem: str) -> None:
    with pytest.raises(ContractError, match=problem):
        check_selection(faulty, [7])


def test_engine_and_reference_refuse_a_faulty_selection() -> None:
    server = Server(selection=Answers(answer="[1, 99]"))
    config = SimulationConfig((group(count=5),), server, workload(5), rounds=1, seed=1)
    for simulated in (simulate, simulate_reference):
        with pytest.raises(ContractError, match=r"test_models\.py\): select returned client 99"):
            list(simulated(config))


def test_what_a_selection_answers_is_sorted() -> None:
    shuffling = Answers(answer="(rng.shuffle(candidates), candidates[:wanted].tolist())[1]")
    candidates = np.arange(0, 20, 2)
    selected = shuffling.selected_from(candidates, 3, stream(7, "contract"))
    assert len(selected) == 3
    assert (np.diff(selected) > 0).all()
    np.testing.assert_array_equal(candidates, np.arange(0, 20, 2))


def test_a_link_model_that_stands_still_breaks_its_contract() -> None:
    class Frozen(Connectivity):
        def spells(self, rng: np.random.Generator) -> Iterator[Spell]:
            yield Spell(True, 0.0)

    with pytest.raises(ContractError, match="above 0"):
        check_connectivity(Frozen())


def frac_on(spells: Iterator[Switch], until_s: float) -> float:
    t_s = on_s = 0.0
    for on, whole_s in spells:
        length_s = min(whole_s, until_s - t_s)
        t_s, on_s = t_s + length_s, on_s + length_s * on
        if t_s >= until_s:
            break
    return on_s / until_s


def test_a_link_is_up_with_the_probability_of_renewal_theory() -> None:
    """Up / (up + down), from the very start on: the process begins in equilibrium."""
    on, off = Lengths(median_s=1000, ln_sd=0.8), Lengths(median_s=2000, ln_sd=1.2)
    theory = on.mean_s() / (on.mean_s() + off.mean_s())
    short = [frac_on(alternate(on, off, stream(1, i)), 500.0) for i in range(4000)]
    assert np.mean(short) == pytest.approx(theory, abs=0.02)
    assert frac_on(alternate(on, off, stream(2)), 2e7) == pytest.approx(theory, abs=0.02)


def test_tilt_spreads_devices_and_a_charger_calms_the_screen() -> None:
    on = off = Lengths(median_s=600, ln_sd=0.5)
    often = frac_on(alternate(on, off, stream(1), tilt=2.0), 1e7)
    assert often == pytest.approx(1 / (1 + math.exp(-2.0)), abs=0.02)
    model: Any = build(
        "usage", {"kind": "spells", "plugged_calm_factor": 5.0, "screen_off": {"median_s": 60.0}}
    )
    calm = frac_on(model.screen(stream(3), SimpleNamespace(on_charger=True)), 1e7)
    busy = frac_on(model.screen(stream(3), SimpleNamespace(on_charger=False)), 1e7)
    assert calm < 0.8 * busy


def test_spells_take_the_lengths_of_the_part_of_day_they_start_in() -> None:
    on = Lengths(median_s=(10.0, 20.0, 30.0, 40.0))
    off = Lengths(median_s=3590.0)
    seen: dict[int, set[int]] = {}
    t_s = 0.0
    for is_on, length_s in islice(alternate(on, off, stream(5)), 400):
        if is_on and t_s > 0:
            seen.setdefault(round(length_s), set()).add(int(t_s % 86_400 // 3_600))
        t_s += length_s
    assert seen[10] <= {23, 0, 1, 2, 3, 4, 5}
    assert seen[20] <= set(range(6, 12))
    assert seen[30] <= set(range(12, 18))
    assert seen[40] <= set(range(18, 23))


def test_bandwidth_has_the_spread_between_and_within_devices_that_it_says() -> None:
    model = OnOff(bandwidth=Bandwidth(down_bps=10e6, up_bps=5e6, ln_sd=1.0, session_cv=0.4))
    rates = [
        [s.down_bps for s in islice(model.spells(stream(1, client)), 40) if s.online] for client in range(400)
    ]
    logs = [np.log(r) for r in rates]
    assert np.std(np.concatenate(logs)) == pytest.approx(1.0, abs=0.1)
    assert np.mean([np.std(log) for log in logs]) == pytest.approx(math.sqrt(math.log(1.16)), abs=0.03)
    assert np.median(np.concatenate(rates)) == pytest.approx(10e6, rel=0.15)
    floored = OnOff(bandwidth=Bandwidth(down_bps=1e6, up_bps=1e6, floor_bps=9e6))
    assert min(s.down_bps for s in islice(floored.spells(stream(1)), 20) if s.online) >= 9e6


def test_mobile_is_on_cellular_in_the_fraction_of_gaps_it_says() -> None:
    model = Mobile(wifi_on=Lengths(median_s=100.0), wifi_off=Lengths(median_s=100.0), cellular_frac=0.7)
    networks = [s.network for s in islice(model.spells(stream(3)), 4000)]
    gaps = [n for n in networks if n != Network.wifi]
    assert np.mean([n == Network.cellular for n in gaps]) == pytest.approx(0.7, abs=0.03)
    never = Mobile(no_wifi_frac=1.0)
    assert all(s.network != Network.wifi for s in islice(never.spells(stream(3)), 50))


def test_home_wifi_is_home_at_night() -> None:
    model = HomeWifi(home_wifi_frac=1.0, away_wifi_frac=0.0)
    t_s = 0.0
    night, day = [], []
    for spell in islice(model.spells(stream(4)), 500):
        hour = t_s % 86_400 / 3_600
        if hour < 4:
            night.append(spell.network == Network.wifi)
        elif 12 < hour < 13:
            day.append(spell.network == Network.wifi)
        t_s += spell.length_s
    assert night
    assert all(night)
    assert day
    assert not any(day)


def test_hourly_screens_fill_each_hour_as_configured() -> None:
    fracs = (0.05,) * 12 + (0.4,) * 12
    model = Hourly(screen_on_frac=fracs, screen_session=Lengths(median_s=60.0, ln_sd=0.5))
    t_s = 0.0
    on_s = np.zeros(24)
    for on, length_s in islice(model.screen(stream(8), StillPhone()), 30_000):
        if on:
            on_s[int(t_s % 86_400 // 3_600)] += length_s
        t_s += length_s
    frac = on_s / (t_s / 24)
    assert frac[:12].mean() == pytest.approx(0.05, abs=0.01)
    assert frac[12:].mean() == pytest.approx(0.4, abs=0.03)


def test_nightly_chargers_are_plugged_in_at_three() -> None:
    model = Nightly(nightly_frac=1.0)
    t_s = 0.0
    nights = 0
    for on, length_s in islice(model.charger(stream(9), StillPhone()), 60):
        for day in range(20):
            if t_s <= day * 86_400 + 3 * 3_600 < t_s + length_s:
                assert on
                nights += 1
        t_s += length_s
    assert nights > 5


COST = NetCost(forward_flops=1e6, depthwise_frac=0.0, parameters=1)


def test_training_time_follows_the_formula() -> None:
    model = Flops(gflops=10.0)
    assert model.work(COST, 500) / model.speed(stream(1)) == pytest.approx(3 * 1e6 * 500 / 10e9)
    half = NetCost(forward_flops=1e6, depthwise_frac=0.5, parameters=1)
    slow = Flops(gflops=10.0, depthwise_factor=0.25)
    assert slow.work(half, 1) == pytest.approx(slow.work(COST, 1) * (0.5 + 0.5 / 0.25))
    hot = Flops(gflops=1, sustained_frac=0.8, throttle_after_s=60)
    assert hot.pace(10.0) == (1.0, 50.0)
    assert hot.pace(60.0) == (0.8, math.inf)


def test_measured_times_ignore_the_net() -> None:
    model = PerSample(ms_per_sample=50.0)
    assert model.work(COST, 100) / model.speed(stream(1)) == pytest.approx(5.0)


def test_speeds_are_lognormal_between_devices() -> None:
    model = Flops(gflops=18.0, gflops_ln_sd=0.3)
    logs = [math.log(model.speed(stream(1, i)) / 18e9) for i in range(3000)]
    assert np.mean(logs) == pytest.approx(0.0, abs=0.02)
    assert np.std(logs) == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize(
    "fields", [{}, {"clients_per_round": 3, "frac": 0.5}, {"frac": 0.0}, {"clients_per_round": 0}]
)
def test_random_selection_wants_one_size(fields: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        Random.model_validate(fields)


@pytest.mark.parametrize(
    ("family", "table"),
    [
        ("connectivity", {"kind": "on_off", "on": {"median_s": -5}}),
        ("connectivity", {"kind": "on_off", "on": {"median_s": 5, "ln_sd": -1}}),
        ("connectivity", {"kind": "mobile", "cellular_frac": 1.5}),
        ("connectivity", {"kind": "always_on", "bandwidth": {"down_bps": 0, "up_bps": 1}}),
        ("usage", {"kind": "hourly", "screen_on_frac": [0.1] * 23}),
        ("usage", {"kind": "hourly", "screen_on_frac": [1.0] * 24}),
        ("usage", {"kind": "hourly", "plug_in_weight": [0.0] * 24}),
        ("compute", {"kind": "flops", "gflops": 0}),
        ("compute", {"kind": "flops", "gflops": 5, "sustained_frac": 1.5}),
    ],
)
def test_models_refuse_impossible_fields(family: str, table: dict[str, object]) -> None:
    with pytest.raises(NestedError):
        build(family, table)
