"""Owners, charging by need and habit, and places: what they do, and that they keep their contracts."""

from __future__ import annotations

import math
from itertools import islice

import numpy as np
import pytest
from pydantic import ValidationError

from fdsim.bench.fleet import small_work
from fdsim.devices.clock import Clock
from fdsim.devices.config.fleet import DeviceGroup
from fdsim.devices.config.server import Eligibility, Server
from fdsim.devices.config.simulation import SimulationConfig
from fdsim.devices.engine.device import Device
from fdsim.devices.models.habits import Habits, Owner
from fdsim.devices.models.loose_plug import LoosePlug
from fdsim.devices.models.places import Places
from fdsim.devices.models.spells import DAY_S, HOUR_S, Lengths
from fdsim.devices.models.usage_habits import HabitUsage
from fdsim.devices.reference import Server as ReferenceServer
from fdsim.rng import ClientStreams, stream
from fdsim.testing import StillPhone, check_connectivity, check_usage
from fdsim.trace import Network
from fdsim.trace.intervals import joined

STRICT = Habits(
    own_sd_h=0, day_sd_h=0, weekend_later_h=0, out_weekday_frac=1, out_weekend_frac=0, out_ln_sd=0
)


def test_a_day_of_an_owner_without_whims() -> None:
    """Up at 7, out 9 to 17:30 with half an hour on the way, asleep at midnight; home on Saturday, day 5."""
    owner = Owner(STRICT, stream(1))
    at = {hour: owner.at(hour * HOUR_S) for hour in (3, 8, 9.25, 12, 17.25, 18, 24.5, 5 * 24 + 12)}
    assert [(s.place, s.asleep) for s in at.values()] == [
        ("home", True),
        ("home", False),
        ("way", False),
        ("work", False),
        ("way", False),
        ("home", False),
        ("home", True),
        ("home", False),
    ]
    assert at[3].until_s == 7 * HOUR_S


def test_owners_have_hours_of_their_own_that_come_back() -> None:
    """Hours of getting up differ more between owners than from day to day."""
    habits = Habits(own_sd_h=2.0, day_sd_h=0.3, weekend_later_h=0.0)
    rises = []
    for client in range(60):
        owner = Owner(habits, stream(2, client))
        mine = []
        for t_s in np.arange(0, 5 * DAY_S, 600.0):
            now = owner.at(float(t_s))
            if now.asleep and now.until_s not in mine:
                mine.append(now.until_s)
        rises.append([(t_s / HOUR_S) % 24 for t_s in mine[1:5]])
    within = np.mean([np.std(r) for r in rises])
    between = np.std([np.mean(r) for r in rises])
    assert within < 0.6 < 1.2 < between


def test_the_need_falls_from_one_to_what_is_spared() -> None:
    usage = HabitUsage(need_soc=0.2, ease_soc=0.6, spare_frac=0.5)
    assert [usage.need(soc) for soc in (0.0, 0.2, 0.4, 0.6, 1.0)] == pytest.approx([1, 1, 0.75, 0.5, 0.5])


def test_an_empty_battery_is_plugged_in_more_often() -> None:
    usage = HabitUsage(spare_frac=0.1, nightly_frac=0.0, charge=Lengths(median_s=60.0))

    def plug_ins(soc: float) -> int:
        phone = StillPhone()
        phone.soc, phone.screen_on = soc, True
        return sum(on for on, _ in islice(usage.charger(stream(3), phone), 2000))

    assert plug_ins(0.05) > 3 * plug_ins(0.9)


def test_nightly_owners_charge_from_bed_to_breakfast() -> None:
    usage = HabitUsage(nightly_frac=1.0, nightly_keep_frac=1.0, plug_in_per_hour=(0.0,) * 24)
    phone = StillPhone()
    phone.owner = Owner(STRICT, stream(1))
    t_s, found = 0.0, []
    for on, length_s in islice(usage.charger(stream(4), phone), 40):
        if on:
            found.append((t_s / HOUR_S % 24, (t_s + length_s) / HOUR_S % 24))
        t_s += length_s
    assert found[0] == pytest.approx((0, 7))
    assert all(pair == pytest.approx((0, 7)) for pair in found[1:5])


class Noted(StillPhone):
    """A phone that loses 2 % an hour off its charger, gains 20 % an hour on it, and notes where it begins."""

    def soc_after(self, soc: float, time_s: float, *, lit_frac: float, plugged: bool) -> float:
        return min(1.0, max(0.0, soc + (0.2 if plugged else -0.02) * time_s / HOUR_S))

    def begin_at(self, soc: float) -> None:
        self.soc = soc


def test_the_day_before_of_an_owner_who_charges_at_night_alone() -> None:
    """Asleep from 22 to 7 h: half charged at midnight, the phone is off the charger for 22 h and two hours on it."""
    usage = HabitUsage(nightly_frac=1.0, nightly_keep_frac=1.0, plug_in_per_hour=(0.0,) * 24)
    phone = Noted()
    phone.owner = Owner(STRICT.model_copy(update={"sleep_hour": 22.0}), stream(1))
    assert phone.owner.last_night == pytest.approx((-2 * HOUR_S, 7 * HOUR_S))
    first = next(usage.charger(stream(4), phone))
    assert first == pytest.approx((True, 7 * HOUR_S))
    assert phone.soc == pytest.approx(0.5 - 22 * 0.02 + 2 * 0.2)


def test_the_day_before_of_owners_who_charge_by_need() -> None:
    """Plug-ins at 1 an hour below a quarter, none above; charges of an hour: few phones are low, and some are charging."""
    usage = HabitUsage(
        nightly_frac=0.0,
        plug_in_per_hour=(1.0,) * 24,
        plug_in_device_ln_sd=0.0,
        charge_device_ln_sd=0.0,
        idle_plug_frac=1.0,
        need_soc=0.25,
        ease_soc=0.25,
        spare_frac=0.0,
        charge=Lengths(median_s=HOUR_S),
    )
    begun, charging = [], []
    for client in range(2000):
        phone = Noted()
        on, length_s = next(usage.charger(stream(4, client), phone))
        begun.append(phone.soc)
        charging.append(on)
        assert length_s <= HOUR_S or not on
    # An hour on the charger is used up in ten: in equilibrium 1 of 11 hours, all of it below a quarter and 20 % more.
    assert np.mean(charging) == pytest.approx(1 / 11, abs=0.03)
    assert 0.1 < min(begun) < max(begun) <= 0.45
    assert np.mean(np.array(begun) < 0.2) < 0.1


@pytest.mark.parametrize(("initial_soc", "low", "high"), [([0.3, 0.4], 0.3, 0.4), ("usual", 0.0, 1.0)])
def test_a_range_of_charges_at_the_start_is_kept_and_else_they_are_as_usual(
    initial_soc: object, low: float, high: float
) -> None:
    group = DeviceGroup.model_validate({"profile": "us_nightly", "count": 60, "initial_soc": initial_soc})
    streams = ClientStreams(3, 60)
    found = [Device(client, group, Eligibility(), streams, outages=[]).soc for client in range(60)]
    assert low <= min(found) < max(found) <= high
    assert (np.mean(found) > 0.7) == (initial_soc == "usual")
    config = SimulationConfig((group,), Server(), small_work(60), 1, 3)
    server = ReferenceServer(env := Clock(), config)
    env.run(until=1e-6)
    assert [device.soc for device in server.devices] == pytest.approx(found, abs=1e-6)


def test_a_loose_plug_cuts_a_charge_into_pieces_of_the_same_length_in_all() -> None:
    """Contact holds for 60 s and is lost for 10 s, again and again until it holds."""
    plug = LoosePlug(
        frac=0.5,
        again_frac=0.75,
        contact_median_s=60.0,
        contact_ln_sd=0.0,
        lost_median_s=10.0,
        lost_ln_sd=0.0,
    )
    rng, losses = stream(8), []
    for _ in range(4000):
        pieces = list(plug.pieces(1e6, rng))
        assert sum(length_s for _, length_s in pieces) == pytest.approx(1e6)
        assert pieces[:-1] == [(True, 60.0), (False, 10.0)] * (len(pieces) // 2)
        assert pieces[-1].on
        losses.append(len(pieces) // 2)
    # Half of the charges are whole; of the others each loss is followed by another with the chance 3/4.
    assert np.mean(np.array(losses) > 0) == pytest.approx(0.5, abs=0.03)
    assert np.mean(losses) == pytest.approx(0.5 / (1 - 0.75), rel=0.08)
    assert list(plug.pieces(70.0, rng)) == [(True, 70.0)]


def test_a_charger_in_pieces_is_the_charger_of_the_same_owner() -> None:
    """From bed to breakfast every night; contact is lost in every charge, the nights stay where they are."""
    usage = HabitUsage(
        nightly_frac=1.0, nightly_keep_frac=1.0, plug_in_per_hour=(0.0,) * 24, loose_plug=LoosePlug(frac=1.0)
    )
    phone = StillPhone()
    phone.owner = Owner(STRICT, stream(1))
    t_s, found = 0.0, []
    for on, length_s in islice(usage.charger(stream(4), phone), 60):
        if on:
            found.append((t_s, t_s + length_s))
        t_s += length_s
    nights = joined(np.array(found), gap_s=HOUR_S)
    assert len(found) > len(nights) + 5
    assert nights[:-1, 0] / HOUR_S == pytest.approx(24.0 * np.arange(len(nights) - 1))
    assert nights[:-1, 1] / HOUR_S == pytest.approx(24.0 * np.arange(len(nights) - 1) + 7.0)


def test_the_mean_of_spells_that_are_cut_after_a_day() -> None:
    lengths = Lengths(median_s=(600.0, 50_000.0, 600.0, 600.0), ln_sd=(3.0, 1.0, 0.0, 1.0))
    draws = stream(10).standard_normal(200_000)
    parts = [
        np.minimum(DAY_S, np.exp(mean + 0.5 + sd * draws)).mean() * hours
        for (mean, sd), hours in zip(lengths.ln, (7, 6, 6, 5), strict=True)
    ]
    assert lengths.mean_within_day_s(0.5) == pytest.approx(sum(parts) / 24, rel=0.01)


def test_plugging_in_lights_the_screen_for_a_glance_and_unplugging_for_use() -> None:
    usage = HabitUsage(glance_s=15.0)
    phone = StillPhone()
    spells = usage.screen(stream(5), phone)
    next(spells)
    glances = []
    for step in range(1, 201):
        phone.t_s, phone.on_charger = 1000.0 * step, bool(step % 2)
        on, length_s = next(spells)
        assert on
        if phone.on_charger:
            glances.append(math.log(length_s / 15.0))
    assert abs(np.mean(glances)) < 0.3
    assert np.std(glances) == pytest.approx(1.0, abs=0.2)


def test_places_decide_about_the_wifi() -> None:
    link = Places(home_effect=3.0, way_effect=-20.0, work_effect=-3.0, roam_frac=0.0)
    on = dict.fromkeys(("home", "way", "work"), 0.0)
    total = dict(on)
    for client in range(20):
        phone, looks = StillPhone(), Owner(STRICT, stream(6, client))
        phone.owner = Owner(STRICT, stream(6, client))
        t_s = 0.0
        for spell in islice(link.follow(stream(7, client), phone), 60):
            place = looks.at(t_s).place
            total[place] += spell.length_s
            on[place] += spell.length_s * (spell.network is Network.wifi)
            t_s += spell.length_s
    share = {place: on[place] / total[place] for place in on}
    assert share["home"] > 0.8 > 0.3 > share["work"] > share["way"]
    assert share["way"] < 0.01


def test_shared_leanings_correlate() -> None:
    def pair(client: int, shared: float) -> tuple[float, float]:
        owner = Owner(Habits(shared_frac=shared), stream(8, client))
        rng = stream(9, client)
        return owner.leaning(rng), owner.leaning(rng)

    for shared, expected in ((0.0, 0.0), (0.8, 0.64)):
        found = np.corrcoef(np.array([pair(client, shared) for client in range(800)]).T)[0, 1]
        assert found == pytest.approx(expected, abs=0.1)


def test_contracts() -> None:
    check_usage(HabitUsage())
    check_connectivity(Places())


def test_impossible_habits_are_refused() -> None:
    with pytest.raises(ValidationError, match="ease_soc"):
        HabitUsage(need_soc=0.5, ease_soc=0.4)
    with pytest.raises(ValidationError, match="negative"):
        HabitUsage(plug_in_per_hour=(-1.0,) * 24)
