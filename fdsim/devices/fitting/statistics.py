"""What a set of phones does, in numbers: the same for logs of real phones and for a simulated fleet.

Every phone is reduced to a `PhoneRecord` once; statistics are computed from records, so that resampling phones for a
bootstrap costs no second look at the logs. Sessions of charger, screen and Wi-Fi are counted after joining those that
lie under `FLAP_S` apart, as published figures are; eligible sessions are taken as they are, since each end is a dropout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fdsim.trace.availability import Observed
from fdsim.trace.intervals import complement, intersection, joined, on_at, total_s
from fdsim.trace.sessions import HORIZONS_S, leave_within

DAY_S, HOUR_S = 86_400.0, 3_600.0
#: Gaps shorter than this do not end a session of the charger, the screen or the Wi-Fi, s.
FLAP_S = 120.0
#: A battery at this state of charge or above counts as full.
FULL_SOC = 0.995
#: Lags of the autocorrelation of eligibility within a device, by name, s.
LAGS_S = {"30 min": 1_800.0, "12 h": 43_200.0, "24 h": 86_400.0}
#: The distributions that are compared by their Kolmogorov–Smirnov distance.
DISTRIBUTIONS = ("charge", "screen", "wifi", "eligible", "soc")
_STEP_S = 300.0
_NOTHING = np.empty((0, 2))


@dataclass(frozen=True)
class PhoneRecord:
    """What one phone contributes to the statistics."""

    span_s: float
    shares_s: Mapping[str, float]
    """Seconds in each state, or in several at once, as 'charging', 'idle+charging'."""
    plug_ins: int
    contacts: int
    """Plug-ins, and how often a charger that had lost contact for a while got it back."""
    screen_sessions: int
    level_s: float
    """Time for which a battery level is known, s."""
    full_s: float
    plug_in_soc: np.ndarray
    lengths_s: Mapping[str, np.ndarray]
    """Session lengths by 'charge', 'screen', 'wifi', 'eligible'; and 'soc', levels on a regular grid of time."""
    by_hour: Mapping[str, np.ndarray]
    """[24] how often the phone was 'seen', and 'eligible', 'idle' or 'charging' then, by hour of the day."""
    autocorrelation: tuple[float, ...]
    """Of eligibility, at `LAGS_S`; NaN where the log is too short or constant."""


def record(seen: Observed) -> PhoneRecord:
    """Reduce one phone's log to what the statistics need."""
    only_available = "available" in seen.states
    states = {
        name: seen.during(name) if name in seen.states else _NOTHING
        for name in ("idle", "charging", "wifi", "cellular")
    }
    if only_available:
        states["charging"] = seen.during("available")
    eligible = seen.eligible
    charging_idle = intersection(states["charging"], states["idle"])
    charges = joined(states["charging"], gap_s=FLAP_S)
    screens = (
        joined(complement(states["idle"], seen.begin_s, seen.end_s), gap_s=FLAP_S)
        if "idle" in seen.states
        else _NOTHING
    )
    wifi = joined(states["wifi"], gap_s=FLAP_S)
    shares = {name: total_s(found) for name, found in states.items()}
    shares["idle+charging"] = total_s(charging_idle)
    shares["all three"] = total_s(intersection(charging_idle, states["wifi"]))
    shares["idle+wifi"] = total_s(intersection(states["idle"], states["wifi"]))
    shares["eligible"] = total_s(eligible)
    known, full_s, soc = _levels(seen)
    return PhoneRecord(
        span_s=seen.span_s,
        shares_s=shares,
        plug_ins=len(charges),
        contacts=len(states["charging"]),
        screen_sessions=len(screens),
        level_s=known,
        full_s=full_s,
        plug_in_soc=_soc_at(seen, charges[:, 0]),
        lengths_s={
            "charge": _lengths(charges),
            "screen": _lengths(screens),
            "wifi": _lengths(wifi),
            "eligible": _lengths(eligible),
            "soc": soc,
        },
        by_hour=_by_hour(
            seen, {"eligible": eligible, "idle": states["idle"], "charging": states["charging"]}
        ),
        autocorrelation=tuple(_autocorrelation(seen, eligible, lag_s) for lag_s in LAGS_S.values()),
    )


def _lengths(intervals: np.ndarray) -> np.ndarray:
    return np.asarray(intervals[:, 1] - intervals[:, 0])


def _soc_at(seen: Observed, times_s: np.ndarray) -> np.ndarray:
    """The last battery reading at or before each time; none for times before the first reading."""
    if not len(seen.levels):
        return np.empty(0)
    index = np.searchsorted(seen.levels[:, 0], times_s, side="right") - 1
    return np.asarray(seen.levels[index[index >= 0], 1])


def _levels(seen: Observed) -> tuple[float, float, np.ndarray]:
    if not len(seen.levels):
        return 0.0, 0.0, np.empty(0)
    times_s, soc = seen.levels.T
    lasts_s = np.diff(np.append(times_s, seen.end_s))
    grid = _soc_at(seen, np.arange(times_s[0], seen.end_s, 2 * _STEP_S))
    return float(lasts_s.sum()), float(lasts_s[soc >= FULL_SOC].sum()), grid


def _by_hour(seen: Observed, states: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    times_s = np.arange(np.ceil(seen.begin_s / _STEP_S) * _STEP_S, seen.end_s, _STEP_S)
    hour = (times_s % DAY_S // HOUR_S).astype(int)
    on = {
        name: np.bincount(hour, weights=on_at(found, times_s), minlength=24) for name, found in states.items()
    }
    return {"seen": np.bincount(hour, minlength=24), **on}


def _autocorrelation(seen: Observed, eligible: np.ndarray, lag_s: float) -> float:
    times_s = np.arange(seen.begin_s, seen.end_s - lag_s, _STEP_S)
    now, later = on_at(eligible, times_s), on_at(eligible, times_s + lag_s)
    if len(times_s) < 2 or now.all() or later.all() or not (now.any() and later.any()):
        return float("nan")
    return float(np.corrcoef(now, later)[0, 1])


def statistics(phones: Sequence[PhoneRecord]) -> dict[str, float]:
    """Compute every statistic of a set of phones; NaN for those that the logs say nothing about."""
    span_s = np.array([p.span_s for p in phones])
    days = span_s.sum() / DAY_S
    time_s = {name: np.array([p.shares_s[name] for p in phones]) for name in phones[0].shares_s}
    share = {name: float(found.sum() / span_s.sum()) for name, found in time_s.items()}
    eligible = time_s["eligible"] / span_s
    plug_in_soc = np.concatenate([p.plug_in_soc for p in phones])
    level_s = sum(p.level_s for p in phones)
    by_hour = hour_profile(phones)
    lengths_s = np.concatenate([p.lengths_s["eligible"] for p in phones])
    product = share["idle"] * share["charging"] * share["wifi"]
    found = {
        "charging": float((time_s["charging"] / span_s).mean()),
        "wifi": float((time_s["wifi"] / span_s).mean()) if share["idle"] else float("nan"),
        "cellular": float((time_s["cellular"] / span_s).mean()) if share["idle"] else float("nan"),
        "screen on": float(1 - (time_s["idle"] / span_s).mean()) if share["idle"] else float("nan"),
        "charging, spread": float((time_s["charging"] / span_s).std()),
        "wifi, spread": float((time_s["wifi"] / span_s).std()) if share["idle"] else float("nan"),
        "never on wifi": float((time_s["wifi"] == 0).mean()) if share["idle"] else float("nan"),
        "idle on wifi": float((time_s["idle+wifi"] / span_s).mean()) if share["idle"] else float("nan"),
        "plug-ins a day": sum(p.plug_ins for p in phones) / days,
        "plug-in level, median": float(np.median(plug_in_soc)) if len(plug_in_soc) else float("nan"),
        "full battery": sum(p.full_s for p in phones) / level_s if level_s else float("nan"),
        "screen sessions a day": sum(p.screen_sessions for p in phones) / days
        if share["idle"]
        else float("nan"),
        "P(idle | charging)": _ratio(share["idle+charging"], share["charging"]) if share["idle"] else np.nan,
        "P(idle | not charging)": _ratio(share["idle"] - share["idle+charging"], 1 - share["charging"])
        if share["idle"]
        else float("nan"),
        "joint lift": _ratio(share["all three"], product),
        "availability": float(eligible.mean()),
        "never available": float((eligible == 0).mean()),
        "fullest : emptiest hour": _ratio(float(by_hour.max()), float(by_hour.min())),
        "session median, s": float(np.median(lengths_s)) if len(lengths_s) else float("nan"),
    }
    for horizon_s in HORIZONS_S:
        found[f"leaves within {horizon_s:g} s"] = leave_within(lengths_s, horizon_s)
    lags = np.array([p.autocorrelation for p in phones])
    for place, name in enumerate(LAGS_S):
        known = lags[~np.isnan(lags[:, place]), place]
        found[f"autocorrelation {name}"] = float(known.mean()) if len(known) else float("nan")
    return found


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else float("nan")


def pooled(phones: Sequence[PhoneRecord], name: str) -> np.ndarray:
    """All values of one of `DISTRIBUTIONS`, over all phones."""
    return np.concatenate([p.lengths_s[name] for p in phones])


def hour_profile(phones: Sequence[PhoneRecord], state: str = "eligible") -> np.ndarray:
    """[24] share of phones that are 'eligible', 'idle' or 'charging', by hour of the day."""
    on, seen = (np.sum([p.by_hour[name] for p in phones], axis=0) for name in (state, "seen"))
    return np.asarray(on / np.maximum(seen, 1))


def ks_distance(first: np.ndarray, second: np.ndarray) -> float:
    """The greatest difference between two empirical distribution functions; NaN if one is empty."""
    if not len(first) or not len(second):
        return float("nan")
    first, second = np.sort(first), np.sort(second)
    at = np.concatenate([first, second])
    below_first = np.searchsorted(first, at, side="right") / len(first)
    below_second = np.searchsorted(second, at, side="right") / len(second)
    return float(np.abs(below_first - below_second).max())
