"""The method of simulated moments: move a few parameters until a simulated fleet has the statistics of the phones.

Every parameter that is moved has one statistic of its own that it moves most. In turn a fleet is simulated, always with
the same random numbers, and each parameter takes a step in proportion to what its statistic lacks; steps shrink. This
is stochastic approximation after Robbins and Monro with a diagonal gain, and needs no derivatives of a noisy function.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from fdsim.devices.config.fleet import DeviceGroup
from fdsim.devices.fitting.fleet_log import as_available, fleet_log
from fdsim.devices.fitting.statistics import PhoneRecord, hour_profile, pooled, record, statistics

Table = dict[str, Any]
#: Called after each turn with its number and the statistics of the simulated fleet.
OnTurn = Callable[[int, Mapping[str, float]], None]
#: Seeds of the fleets that parameters are tuned on; never those of a report.
TUNING_SEED = 90_001
#: Hours in which most owners sleep, and hours in which hardly any does.
_NIGHT, _DAY = slice(0, 6), slice(10, 18)


class Plan(NamedTuple):
    """How much is simulated for a fit."""

    devices: int = 800
    days: tuple[float, ...] = (5.0,)
    """For how long phones are looked at, in turn: as long as the real ones, since most statistics depend on it."""
    turns: int = 20
    seed: int = TUNING_SEED


class Knob(NamedTuple):
    """A parameter, the statistic that it is moved by, and how."""

    statistic: str
    keys: tuple[str, ...]
    """Dotted keys of the parameter, or of several that move together."""
    gain: float
    """Step of ln(parameter) per step of ln(statistic), or of its ln odds."""
    low: float
    high: float
    scale: Literal["ln", "odds", "plain"] = "ln"
    """Whether the statistic is compared by its logarithm, if it is a share by its ln odds, or as it is."""
    additive: bool = False
    """Whether the parameter itself is moved, not its logarithm."""


CHARGING = (
    Knob("plug-ins a day", ("usage.plug_in_per_hour",), 0.9, 1e-3, 20.0),
    # Many short charges and a few long ones: the middle of the lengths, then what the long ones add to the time.
    Knob("charge, median", ("usage.charge.median_s",), 0.7, 30.0, 40_000.0),
    Knob("charging", ("usage.charge.ln_sd",), 0.5, 0.5, 2.5, "odds"),
    # Phones differ by habits that are kept more or less, and a little by how long they charge.
    Knob("charging, spread", ("usage.nightly_keep_frac",), 0.5, 0.4, 0.95, additive=True),
    Knob("charging, spread", ("usage.charge_device_ln_sd",), 0.15, 0.0, 0.8, additive=True),
)
#: For logs that tell no more than when phones were available, of phones whose own hours are unknown.
AVAILABLE = (
    *CHARGING,
    Knob("daily rhythm", ("usage.nightly_frac",), 2.0, 0.0, 0.95, "plain", additive=True),
    Knob("lost contacts a charge", ("usage.loose_plug.frac",), 0.8, 0.001, 1.0),
)
ALL = (
    *CHARGING,
    Knob("charging at night", ("usage.nightly_frac",), 0.3, 0.0, 0.95, "odds", additive=True),
    Knob("idle, night : day", ("usage.asleep_calm_factor",), 2.0, 1.0, 20.0),
    Knob("plug-in level, median", ("usage.spare_frac",), 0.6, 0.01, 1.0),
    Knob("soc median", ("power.idle_w", "power.screen_w"), -0.4, 0.03, 4.0),
    Knob("full battery", ("battery.floor_frac",), 0.4, 0.1, 1.0),
    Knob("screen session, median", ("usage.screen_on.median_s",), 0.5, 1.0, 3600.0),
    Knob("screen session, spread", ("usage.screen_on.ln_sd",), 0.4, 0.5, 3.5),
    Knob("P(idle | not charging)", ("usage.left_on_frac",), -1.5, 1e-4, 0.06, "odds"),
    Knob("P(idle | charging)", ("usage.plugged_on_factor",), -1.0, 0.1, 20.0, "odds"),
    Knob("leaves within 120 s", ("usage.plugged_calm_factor", "usage.plugged_on_factor"), -0.7, 0.1, 30.0),
    Knob("screen sessions a day", ("usage.screen_off.median_s",), -0.9, 1.0, 3600.0),
    Knob("wifi", ("connectivity.wifi_on.median_s",), 0.5, 10.0, 80_000.0, "odds"),
    Knob("wifi", ("connectivity.wifi_off.median_s",), -0.5, 10.0, 80_000.0, "odds"),
    Knob("cellular", ("connectivity.cellular_frac",), 0.8, 0.01, 0.99, "odds"),
    Knob("joint lift", ("habits.shared_frac",), 0.6, 0.0, 0.9, additive=True),
    # Two witnesses of one parameter, which settles between them.
    Knob("never on wifi", ("connectivity.no_wifi_frac",), 0.05, 0.0, 0.6, "odds", additive=True),
    Knob("never available", ("connectivity.no_wifi_frac",), 0.05, 0.0, 0.6, "odds", additive=True),
    Knob("wifi, spread", ("connectivity.device_ln_sd",), 1.0, 0.1, 5.0),
)


def simulated(profile: Table, plan: Plan, *, available: bool) -> list[PhoneRecord]:
    """The records of a simulated fleet of a profile."""
    group = DeviceGroup.model_validate({**profile, "count": plan.devices})
    logs = fleet_log(group, plan.seed, days=plan.days)
    return [record(as_available(log) if available else log) for log in logs]


def moments(phones: list[PhoneRecord]) -> dict[str, float]:
    """The statistics that parameters are tuned by: those of a report, and what its distributions are like."""
    soc, screen_s = pooled(phones, "soc"), pooled(phones, "screen")
    low_s, middle_s, high_s = np.quantile(screen_s, [0.25, 0.5, 0.75]) if len(screen_s) else (np.nan,) * 3
    charge_s, found = pooled(phones, "charge"), statistics(phones)
    idle, charging = (hour_profile(phones, state) for state in ("idle", "charging"))
    plug_ins, contacts = sum(p.plug_ins for p in phones), sum(p.contacts for p in phones)
    return {
        **found,
        "charge, median": float(np.median(charge_s)) if len(charge_s) else float("nan"),
        "lost contacts a charge": contacts / plug_ins - 1 if plug_ins else float("nan"),
        "charging at night": float(charging[_NIGHT].mean()),
        "idle, night : day": float(idle[_NIGHT].mean() / idle[_DAY].mean()) if idle[_DAY].any() else np.nan,
        # What comes back after a day but not after half a day, whatever the hours of the phones' clocks.
        "daily rhythm": found["autocorrelation 24 h"] - found["autocorrelation 12 h"],
        "soc median": float(np.median(soc)) if len(soc) else float("nan"),
        "screen session, median": float(middle_s),
        "screen session, spread": float(np.log(high_s / low_s)),
    }


def calibrate(
    profile: Table,
    target: Mapping[str, float],
    plan: Plan | None = None,
    *,
    available: bool = False,
    on_turn: OnTurn | None = None,
) -> Table:
    """Return the profile with its parameters moved until a simulated fleet meets the target's statistics."""
    profile, plan = copy.deepcopy(profile), plan or Plan()
    knobs = knobs_for(target, available=available)
    for turn in range(plan.turns):
        found = moments(simulated(profile, plan._replace(seed=plan.seed + turn), available=available))
        if on_turn is not None:
            on_turn(turn, found)
        gain = 1.0 if turn < plan.turns // 2 else 1.0 / (turn - plan.turns // 2 + 1)
        for knob in knobs:
            lack = _lack(target[knob.statistic], found[knob.statistic], knob.scale)
            for key in knob.keys:
                _move(profile, key, knob, gain * knob.gain * lack)
    return profile


def knobs_for(target: Mapping[str, float], *, available: bool) -> list[Knob]:
    """Return the parameters that are moved, given the statistics that logs have."""
    return [k for k in (AVAILABLE if available else ALL) if math.isfinite(target.get(k.statistic, math.nan))]


def _lack(target: float, found: float, scale: str) -> float:
    if not math.isfinite(found):
        return 0.0
    if scale == "plain":
        lack = target - found
    elif scale == "odds":
        lack = _ln_odds(target) - _ln_odds(found)
    else:
        lack = math.log(max(target, 1e-3)) - math.log(max(found, 1e-3))
    # One noisy turn must not throw a parameter far away.
    return max(-1.0, min(1.0, lack))


def _ln_odds(share: float) -> float:
    share = min(0.999, max(0.001, share))
    return math.log(share / (1.0 - share))


def _move(profile: Table, key: str, knob: Knob, step: float) -> None:
    *path, last = key.split(".")
    table = profile
    for word in path:
        table = table.get(word, {})
    value = table.get(last)
    if value is None:
        return
    if isinstance(value, list):
        table[last] = [_moved(v, knob, step) for v in value]
    else:
        table[last] = _moved(value, knob, step)


def _moved(value: float, knob: Knob, step: float) -> float:
    moved = value + step if knob.additive else value * math.exp(step)
    return float(f"{min(knob.high, max(knob.low, moved)):.4g}")
