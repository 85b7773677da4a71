"""Fit a device profile to logs: estimate on one half of the phones, calibrate, test on the other half."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fdsim.catalogue import merge
from fdsim.devices.config.profiles import profile as look_up
from fdsim.devices.fitting.calibrate import OnTurn, Plan, calibrate, knobs_for, moments, simulated
from fdsim.devices.fitting.estimate import first_estimate, halves
from fdsim.devices.fitting.goodness import Row, goodness
from fdsim.devices.fitting.log_check import check_phones, refuse_constant
from fdsim.devices.fitting.statistics import DAY_S, PhoneRecord, record
from fdsim.errors import TraceError
from fdsim.rng import stream
from fdsim.trace.availability import Observed

Table = dict[str, Any]
#: Seeds of the fleets of a report; parameters are never tuned on them.
REPORT_SEEDS = (1, 2, 3)
#: What a fit starts from, and keeps where logs say nothing.
BASE: Table = {
    "low_soc": 0.0,
    "initial_soc": "usual",
    "battery": {
        "kind": "tapered",
        "capacity_wh": 15.4,
        "charge_w": 4.0,
        "charge_efficiency_frac": 0.9,
        "taper_soc": 0.8,
        "floor_frac": 0.4,
    },
    "habits": {
        "sleep_hour": 24.0,
        "wake_hour": 6.75,
        "leave_hour": 9.0,
        "return_hour": 17.0,
        "own_sd_h": 1.0,
        "day_sd_h": 0.8,
        "shared_frac": 0.4,
    },
    "usage": {
        "kind": "habits",
        "out_plug_frac": 0.8,
        "plugged_on_factor": 1.2,
    },
}
#: Keys of which only battery readings can tell anything; without them they stay as in the profile that it is like.
_OF_READINGS = ("low_soc", "initial_soc", "battery")
#: Keys that come with the estimates, but are none.
_NOT_ESTIMATED = {"usage.need_soc", "usage.ease_soc", "battery.capacity_wh"}
_PLACES: Table = {
    "kind": "places",
    # Phones of the FLASH logs are on Wi-Fi no more at night than by day: 33 and 37 % of the time.
    "home_effect": 0.0,
    "work_effect": 0.0,
    "way_effect": -1.0,
    "roam_frac": 0.7,
    "cellular_frac": 0.4,
}
#: An owner with a low battery, at home and at the screen, plugs in more often than owners do in all.
_NEEDY = 3.0
#: A charger that goes in or out cuts short a screen that was left on: so many times more are begun than are seen.
_LEFT_ON_CUT = 3.0


@dataclass(frozen=True)
class Fit:
    """A fitted profile and how good it is on phones it was not fitted to."""

    profile: Table
    fitted: frozenset[str]
    """Dotted keys of the profile that come from the log; its other keys are set, or those of the profile it is like."""
    rows: list[Row]
    fitted_to: int
    test: list[PhoneRecord]
    simulated: list[PhoneRecord]


def fit(
    phones: Sequence[Observed],
    place: str,
    *,
    like: str = "budget_phone",
    seed: int = 0,
    plan: Plan | None = None,
    on_turn: OnTurn | None = None,
    all_phones: bool = False,
) -> Fit:
    """Fit a profile to half of the phones and report on the other half; `place` is the file, for errors.

    With `all_phones` it is fitted to all, and the report is on the same phones: for a profile to keep, once halves have
    shown that the fit is good on phones it has not seen. Where devices of `like` live in many time zones, so do those of the
    logs, and when owners plug in is taken from `like`.
    """
    check_phones(phones, place)
    every = list(range(len(phones)))
    fitting, test = (every, every) if all_phones else halves(phones, stream(seed, "halves"))
    mine = [phones[i] for i in fitting]
    if not all_phones:
        refuse_constant(mine, f"{place}, the half that is fitted")
    available = is_available_only(phones)
    start: Table = {**_base(mine), "profile": like}
    if available:
        start["connectivity"] = {"kind": "always_on"}
    else:
        start["connectivity"] = dict(_PLACES)
    by_hour = _hours_of(like) if available else None
    try:
        estimated = first_estimate(mine, own_hours=by_hour is None)
    except TraceError as error:
        raise TraceError(f"{place}, {error.place}", error.problem, error.remedy) from None
    start = merge(start, estimated)
    usage = start["usage"]
    rates = np.array(usage["plug_in_per_hour"]) * _NEEDY
    if by_hour is not None:
        rates *= by_hour / by_hour.mean()
    usage["plug_in_per_hour"] = [round(float(rate), 3) for rate in rates]
    if "left_on_frac" in usage:
        usage["left_on_frac"] = min(0.05, usage["left_on_frac"] * _LEFT_ON_CUT)
    records = [record(phone) for phone in mine]
    target = moments(records)
    plan = (plan or Plan())._replace(days=_spans(records))
    profile = calibrate(start, target, plan, available=available, on_turn=on_turn)
    tested = [record(phones[i]) for i in test]
    rows, fleets = compare(profile, tested, available=available, seed=seed, devices=plan.devices)
    fitted = _keys(estimated) - _NOT_ESTIMATED | _moved(target, available=available)
    return Fit(profile, frozenset(fitted & _keys(profile)), rows, len(mine), tested, fleets[0])


def _keys(profile: Table) -> set[str]:
    """Return the dotted keys of a profile: those of its tables, and those at its top."""
    return {
        key if not isinstance(value, dict) else f"{key}.{inner}"
        for key, value in profile.items()
        for inner in (value if isinstance(value, dict) else [key])
    }


def _moved(target: Mapping[str, float], *, available: bool) -> set[str]:
    """Return the dotted keys, at most two words of each, that a calibration moves."""
    knobs = knobs_for(target, available=available)
    return {".".join(key.split(".")[:2]) for knob in knobs for key in knob.keys}


def _hours_of(like: str) -> np.ndarray | None:
    """[24] how often owners in many time zones plug in by their own hours; None for those of one zone, whose logs tell it."""
    fields = look_up(like)
    if not fields.get("habits", {}).get("zone_spread_h"):
        return None
    return np.array(fields["usage"].get("plug_in_per_hour", [1.0] * 24))


def _base(phones: Sequence[Observed]) -> Table:
    """Return what a fit to these phones starts from."""
    read = any(len(phone.levels) for phone in phones)
    return {key: value for key, value in BASE.items() if read or key not in _OF_READINGS}


def compare(
    profile: Table,
    real: list[PhoneRecord],
    *,
    available: bool,
    seed: int = 0,
    devices: int = 1000,
    seeds: Sequence[int] = REPORT_SEEDS,
) -> tuple[list[Row], list[list[PhoneRecord]]]:
    """Return the goodness of fit of a profile, and the simulated phones of each seed."""
    plan = Plan(devices=devices, days=_spans(real))
    fleets = [simulated(profile, plan._replace(seed=s), available=available) for s in seeds]
    return goodness(real, fleets, stream(seed, "bootstrap")), fleets


def _spans(phones: Sequence[PhoneRecord]) -> tuple[float, ...]:
    """Return for how many days each phone was looked at."""
    return tuple(phone.span_s / DAY_S for phone in phones)


def is_available_only(phones: Sequence[Observed]) -> bool:
    """Return whether the logs tell no more than when each phone was available."""
    return all("available" in phone.states for phone in phones)
