"""First estimates of a profile from logs: moments and maximum likelihood of what can be read off directly.

Spells are lognormal by the part of the day in which they start, whose maximum-likelihood estimates are the mean and the
standard deviation of ln(length). Plug-ins an hour are events over exposure. What interacts (how need, habit and screen
together make the statistics) is left to `calibrate`, which starts from here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fdsim.devices.fitting.lost_contact import loose_plug
from fdsim.devices.fitting.statistics import FLAP_S, record, statistics
from fdsim.devices.models.spells import DAY_S, HOUR_S, PART_OF_HOUR
from fdsim.errors import TraceError
from fdsim.trace.availability import Observed
from fdsim.trace.intervals import complement, joined, on_at, total_s

#: How often phones are drawn again to find how much a statistic varies by chance.
_RESAMPLES = 60
#: Chance that an owner without the habit is found charging at night, for the share of owners with the habit.
_BY_CHANCE = 0.12
_NIGHT_H = 3.0
#: What a phone must have lost in all, of its full charge, to say how much it draws.
_LEAST_LOST = 0.2
#: A screen that is on for longer is left on, s.
LEFT_ON_S = 4 * HOUR_S
_PARTS = np.array(PART_OF_HOUR)
Table = dict[str, Any]


def _share(phone: Observed, state: str) -> float:
    found = phone.states.get(state, np.empty((0, 2)))
    return float((found[:, 1] - found[:, 0]).sum()) / phone.span_s


def halves(
    phones: Sequence[Observed], rng: np.random.Generator, *, draws: int = 300
) -> tuple[list[int], list[int]]:
    """Split phones into a fitting and a test half: of many random splits, the one whose halves are most alike.

    This is rerandomisation (Morgan and Rubin 2012), with the differences of all statistics in their standard errors.
    With so few phones of so different owners, two halves drawn blindly differ from each other more than a model from
    either. Only the phones decide, never a model.
    """
    records = [record(phone) for phone in phones]
    drawn = [rng.integers(0, len(phones), len(phones)) for _ in range(_RESAMPLES)]
    again = [statistics([records[i] for i in one]) for one in drawn]
    error = {name: _spread_of([one[name] for one in again]) for name in again[0]}
    best: tuple[float, list[int], list[int]] | None = None
    for _ in range(draws):
        order = rng.permutation(len(phones)).tolist()
        fitting, test = sorted(order[: len(order) // 2]), sorted(order[len(order) // 2 :])
        first, second = (statistics([records[i] for i in half]) for half in (fitting, test))
        unlike = sum(_unlike(first[name], second[name], error[name]) for name in first)
        if best is None or unlike < best[0]:
            best = unlike, fitting, test
    if best is None:
        raise ValueError("draws must be above 0")
    return best[1], best[2]


def _unlike(first: float, second: float, error: float) -> float:
    """Return how far apart two values of a statistic are: the square of their difference in standard errors."""
    if not (math.isfinite(first) and math.isfinite(second) and error > 0.0):
        return 0.0
    return ((first - second) / error) ** 2


def _spread_of(values: Sequence[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return float(np.std(known)) if known else 0.0


def first_estimate(phones: Sequence[Observed], *, own_hours: bool = True) -> Table:
    """Return the tables of a device group as far as logs tell them directly.

    Without `own_hours` the clock of the logs is not that of the phones' owners, who live in many time zones: what is
    estimated by hour is then the same for all hours.
    """
    if all("available" in p.states for p in phones):
        usage = {**_charging(phones, "available"), **loose_plug([p.states["available"] for p in phones])}
        return {"usage": usage if own_hours else {**usage, **_at_all_hours(phones, usage)}}
    usage = {**_charging(phones, "charging"), **_screen(phones)}
    return {"usage": usage, "connectivity": _wifi(phones), **_energy(phones)}


# -- spells


def _lengths(
    found: Sequence[np.ndarray],
    phones: Sequence[Observed],
    what: str,
    *,
    keep_mean: bool = False,
    less: float = 0.0,
    longer: float = 0.0,
) -> Table:
    """Lognormal lengths by part of the day, of intervals that lie wholly inside the logs.

    With `keep_mean` the spread is what gives the mean length, since shares of time follow from means and the tail of a
    lognormal may be heavier than that of the logs; `less` is the variance that differences between phones explain, and `longer`
    what they add to ln(length) of a typical phone.
    """
    whole = [
        i[(i[:, 0] > p.begin_s) & (i[:, 1] < p.end_s)] if len(i) else i
        for i, p in zip(found, phones, strict=True)
    ]
    every = np.concatenate(whole) if whole else np.empty((0, 2))
    part = _PARTS[(every[:, 0] % DAY_S // HOUR_S).astype(int)]
    ln = np.log(np.maximum(every[:, 1] - every[:, 0], 1.0))
    if len(ln) < 2:
        raise TraceError(
            what,
            "fewer than two lie wholly within the logs that are fitted",
            "take longer logs, or more phones",
        )
    medians, spreads = [], []
    for index in range(4):
        # A part of the day with few spells borrows from the whole day, as if it had ten of its spells.
        own = ln[part == index]
        weight = len(own) / (len(own) + 10)
        mean = weight * (own.mean() if len(own) else 0.0) + (1 - weight) * ln.mean()
        spread = weight * _spread(own, keep_mean) + (1 - weight) * _spread(ln, keep_mean)
        spread = math.sqrt(max(0.25, spread**2 - less))
        medians.append(round(float(np.exp(mean + longer)), 1))
        spreads.append(round(float(spread), 2))
    return {"median_s": medians, "ln_sd": spreads}


def _spread(ln: np.ndarray, keep_mean: bool) -> float:
    if not len(ln):
        return 0.0
    spread = float(ln.std())
    return min(spread, math.sqrt(2 * float(np.log(np.exp(ln).mean()) - ln.mean()))) if keep_mean else spread


def _screen(phones: Sequence[Observed]) -> Table:
    off = [p.states["idle"] for p in phones]
    on = [complement(p.states["idle"], p.begin_s, p.end_s) for p in phones]
    plugged = [on_at(p.states["charging"], i[:, 0] + 0.5) for p, i in zip(phones, off, strict=True)]
    unplugged_off = [i[~at] for i, at in zip(off, plugged, strict=True)]
    calm = np.concatenate([np.diff(i[at], axis=1) for i, at in zip(off, plugged, strict=True)])
    busy = np.concatenate([np.diff(i, axis=1) for i in unplugged_off])
    own, tempo = _odds_spread(phones, "idle"), _tempo(phones)
    # Spells are counted, and busy phones have more of them: the typical phone's are longer.
    less, longer = own**2 / 4 + tempo**2, tempo**2
    lengths = _lengths(
        unplugged_off, phones, "spells with the screen off", keep_mean=True, less=less, longer=longer
    )
    # At night most owners sleep: what is longer then is theirs, and the night is otherwise as the evening.
    night, _, _, evening = (
        m * math.exp(s**2 / 2) for m, s in zip(lengths["median_s"], lengths["ln_sd"], strict=True)
    )
    asleep = {"asleep_calm_factor": round(min(20.0, max(1.0, night / evening)), 2)}
    for values in lengths.values():
        values[0] = values[3]
    short = [i[np.diff(i, axis=1).ravel() <= LEFT_ON_S] for i in on]
    lengths_s = np.concatenate([np.diff(i, axis=1).ravel() for i in on])
    left_on = np.log(lengths_s[lengths_s > LEFT_ON_S])
    return {
        "screen_on": _lengths(short, phones, "spells with the screen on", less=less, longer=longer),
        "left_on_frac": round(len(left_on) / max(1, len(lengths_s)), 4),
        **(
            {
                "left_on": {
                    "median_s": round(float(np.exp(left_on.mean()))),
                    "ln_sd": round(float(left_on.std()), 2),
                }
            }
            if len(left_on)
            else {}
        ),
        "screen_off": lengths,
        **asleep,
        "screen_device_ln_sd": own,
        "screen_tempo_ln_sd": tempo,
        "plugged_calm_factor": round(float(calm.mean() / busy.mean()), 2) if len(calm) else 1.0,
    }


def _wifi(phones: Sequence[Observed]) -> Table:
    on = [joined(p.states["wifi"], gap_s=FLAP_S) for p in phones]
    off = [complement(i, p.begin_s, p.end_s) for i, p in zip(on, phones, strict=True)]
    never = [not len(p.states["wifi"]) for p in phones]
    some = [p for p, no in zip(phones, never, strict=True) if not no]
    own = _odds_spread(some, "wifi")
    # Half of what distinguishes phones is in their sessions, half in the gaps.
    less = own**2 / 4
    return {
        "wifi_on": _lengths(on, phones, "spells on Wi-Fi", less=less),
        "wifi_off": _lengths(
            [i for i, no in zip(off, never, strict=True) if not no], some, "spells without Wi-Fi", less=less
        ),
        "device_ln_sd": own,
        "no_wifi_frac": round(float(np.mean(never)), 2),
        "idle_wifi_frac": _begun_idle(phones, on),
    }


def _begun_idle(phones: Sequence[Observed], wifi: Sequence[np.ndarray]) -> float:
    """Return how often Wi-Fi sessions begin with the screen off, relative to on: events over exposure."""
    counts = np.zeros((2, 2))
    for phone, found in zip(phones, wifi, strict=True):
        times_s = np.arange(phone.begin_s, phone.end_s, 300.0)
        starts_s = found[found[:, 0] > phone.begin_s, 0]
        for row, at_s in enumerate((starts_s, times_s[~on_at(found, times_s)])):
            counts[row] += np.bincount(on_at(phone.states["idle"], at_s), minlength=2)
    if not counts.all():
        return 1.0
    lit, dark = counts[0] / counts[1]
    return round(float(np.clip(dark / lit, 0.05, 1.0)), 2)


def _tempo(phones: Sequence[Observed]) -> float:
    """Standard deviation between phones of ln(screen sessions a day), less what counting adds."""
    counts = np.array([len(p.states["idle"]) + 1 for p in phones])
    days = np.array([p.span_s / DAY_S for p in phones])
    return round(math.sqrt(max(0.0, float(np.var(np.log(counts / days)) - np.mean(2 / counts)))), 2)


def _odds_spread(phones: Sequence[Observed], state: str) -> float:
    """Standard deviation between phones of ln(on : off), less what the shortness of the logs adds."""
    odds, noise = [], []
    for phone in phones:
        spells = len(phone.states[state]) + 1
        # Half a spell on either side keeps a phone that never changed at a finite value.
        share = (_share(phone, state) * spells + 0.5) / (spells + 1)
        odds.append(math.log(share / (1 - share)))
        noise.append(2 / spells)
    return round(math.sqrt(max(0.0, float(np.var(odds) - np.mean(noise)))), 2)


def _length_spread(spells: Sequence[np.ndarray]) -> float:
    """Standard deviation between phones of their mean ln(length), less what comes of a few spells each."""
    ln = [np.log(np.maximum(i[:, 1] - i[:, 0], 1.0)) for i in spells if len(i) > 1]
    if len(ln) < 2:
        return 0.0
    noise = np.mean([one.var(ddof=1) / len(one) for one in ln])
    return round(math.sqrt(max(0.0, float(np.var([one.mean() for one in ln], ddof=1) - noise))), 2)


# -- the charger


def _charging(phones: Sequence[Observed], state: str) -> Table:
    charges = [joined(p.states[state], gap_s=FLAP_S) for p in phones]
    frac, keep = _nightly(phones, charges)
    rates = np.array([len(c) / p.span_s * DAY_S for c, p in zip(charges, phones, strict=True)])
    mean = rates.mean()
    # Counts vary by themselves: what is left of the variance is the phones' own.
    spread = max(
        0.0,
        float(rates.var() - np.mean([r / (p.span_s / DAY_S) for r, p in zip(rates, phones, strict=True)])),
    )
    by_day = [_by_day(c) for c in charges]
    own = _length_spread(by_day)
    return {
        "plug_in_per_hour": _plug_ins_by_hour(phones, charges),
        "plug_in_device_ln_sd": round(math.sqrt(math.log1p(spread / mean**2)), 2),
        "charge": _lengths(by_day, phones, "charges by day", less=own**2),
        "charge_device_ln_sd": own,
        "nightly_frac": frac,
        "nightly_keep_frac": keep,
        **(_need(phones, charges) if state == "charging" else {}),
    }


def _at_all_hours(phones: Sequence[Observed], usage: Table) -> Table:
    """Return what depends on the hour in the estimates of a charger, as means over all hours."""
    charges = [joined(p.states["available"], gap_s=FLAP_S) for p in phones]
    hours = sum(p.span_s - total_s(c) for p, c in zip(phones, charges, strict=True)) / HOUR_S
    rate = sum(map(len, charges)) / hours
    lengths = usage["charge"]
    # Nobody can tell whose nights are when: the habit starts from what most fits end with.
    return {
        "plug_in_per_hour": [round(rate, 4)] * 24,
        "charge": {key: round(float(np.mean(values)), 2) for key, values in lengths.items()},
        "nightly_frac": 0.2,
        "nightly_keep_frac": 0.7,
    }


def _by_day(charges: np.ndarray) -> np.ndarray:
    """Charges that do not last through the depth of the night, which are the habit's."""
    night_s = np.floor((charges[:, 1] - _NIGHT_H * HOUR_S) / DAY_S) * DAY_S + _NIGHT_H * HOUR_S
    return np.asarray(charges[~((charges[:, 0] <= night_s) & (charges[:, 1] - charges[:, 0] > 4 * HOUR_S))])


def _nightly(phones: Sequence[Observed], charges: Sequence[np.ndarray]) -> tuple[float, float]:
    """Share of owners who charge at night, and of the nights on which they do.

    By moments: how often a phone is charging at 3 am, and on two such nights in a row. With habit (share f, kept on
    k of the nights) and chance c: m = f k + (1 − f) c and m₂ = f k² + (1 − f) c².
    """
    once, twice = [], []
    for phone, found in zip(phones, charges, strict=True):
        days = np.arange(math.floor(phone.begin_s / DAY_S), math.ceil(phone.end_s / DAY_S) + 1)
        times_s = days * DAY_S + _NIGHT_H * HOUR_S
        at_night = on_at(found, times_s[(times_s >= phone.begin_s) & (times_s < phone.end_s)])
        once += at_night.tolist()
        twice += (at_night[1:] & at_night[:-1]).tolist()
    if not once or not twice or np.mean(once) <= _BY_CHANCE:
        return 0.0, 0.7
    m, m2, c = float(np.mean(once)), float(np.mean(twice)), _BY_CHANCE
    keep = min(0.95, max(0.4, (m2 - c**2) / (m - c) - c))
    return round(min(1.0, (m - c) / (keep - c)), 2), round(keep, 2)


def _plug_ins_by_hour(phones: Sequence[Observed], charges: Sequence[np.ndarray]) -> list[float]:
    events, exposed = np.zeros(24), np.zeros(24)
    for phone, found in zip(phones, charges, strict=True):
        events += np.bincount((found[:, 0] % DAY_S // HOUR_S).astype(int), minlength=24)
        times_s = np.arange(phone.begin_s, phone.end_s, 300.0)
        free = times_s[~on_at(found, times_s)]
        exposed += np.bincount((free % DAY_S // HOUR_S).astype(int), minlength=24) / 12.0
    # Three hours at a time: an hour has few plug-ins.
    around = [sum(np.roll(x, s) for s in (-1, 0, 1)) for x in (events, exposed)]
    rate = around[0] / np.maximum(around[1], 1.0)
    return [round(float(r), 3) for r in rate]


def _need(phones: Sequence[Observed], charges: Sequence[np.ndarray]) -> Table:
    """How the rate of plug-ins depends on the battery, and on the screen: ratios of events over exposure."""
    counts = np.zeros((2, 3))
    by_screen = np.zeros((2, 2))
    for phone, found in zip(phones, charges, strict=True):
        if not len(phone.levels):
            continue
        times_s = np.arange(phone.levels[0, 0], phone.end_s, 300.0)
        times_s = times_s[~on_at(found, times_s)]
        starts_s = found[found[:, 0] > phone.levels[0, 0], 0] - 1.0
        for row, at_s in enumerate((starts_s, times_s)):
            soc = phone.levels[np.searchsorted(phone.levels[:, 0], at_s, side="right") - 1, 1]
            counts[row] += np.histogram(soc, bins=[0.0, 0.3, 0.6, 1.01])[0]
            by_screen[row] += np.bincount(on_at(phone.states["idle"], at_s), minlength=2)
    if not counts[:, 0].all() or not counts[1, 2] or not by_screen.all():
        return {}
    low, _, high = counts[0] / np.maximum(counts[1], 1.0)
    lit, dark = by_screen[0] / by_screen[1]
    return {
        "need_soc": 0.25,
        "ease_soc": 0.6,
        "spare_frac": round(float(np.clip(high / low, 0.02, 1.0)), 3),
        "idle_plug_frac": round(float(np.clip(dark / lit, 0.05, 1.0)), 2),
    }


# -- energy


def _power_spread(lost: np.ndarray, expected: np.ndarray, whose: np.ndarray) -> float:
    """Standard deviation between phones of ln(charge that was lost : what the mean phone would have lost)."""
    ratios = [
        (lost[whose == phone].sum(), expected[whose == phone].sum()) for phone in np.unique(whose).tolist()
    ]
    # Readings are whole per cents: of a phone that lost few, the ratio is mostly chance.
    ln = [math.log(has / mean) for has, mean in ratios if has >= _LEAST_LOST and mean > 0.0]
    return round(float(np.std(ln)), 2) if len(ln) > 1 else 0.0


def _energy(phones: Sequence[Observed], capacity_wh: float = 15.4) -> Table:
    """Power of the device and its charger, from how fast the level moves between readings."""
    rows: list[np.ndarray] = []
    for phone in phones:
        times_s, soc = phone.levels.T if len(phone.levels) else (np.empty(0), np.empty(0))
        middle_s = times_s[:-1, None] + np.diff(times_s)[:, None] * np.linspace(0.05, 0.95, 10)
        flat = middle_s.ravel()
        charging = on_at(phone.states["charging"], flat).reshape(middle_s.shape).mean(axis=1)
        lit = 1 - on_at(phone.states["idle"], flat).reshape(middle_s.shape).mean(axis=1)
        whose = np.full(len(lit), len(rows))
        rows.append(
            np.column_stack([charging, lit, soc[:-1], np.diff(soc), np.diff(times_s) / HOUR_S, whose])
        )
    every = np.concatenate(rows) if rows else np.empty((0, 6))
    charging, lit, soc, gain, hours, whose = every.T
    # A level that rises off the charger, or has not been read for long, says that something was not logged.
    # An empty battery loses nothing.
    out = (charging == 0) & (gain <= 0) & (soc > 0.05) & (hours > 0.05) & (hours < 24)
    filling = (charging == 1) & (soc < 0.75) & (hours > 0.05) & (gain > 0)
    if out.sum() < 20 or filling.sum() < 20:
        return {}
    loads = np.column_stack([(1 - lit[out]) * hours[out], lit[out] * hours[out]])
    (idle, screen), *_ = np.linalg.lstsq(loads, -gain[out], rcond=None)
    idle_w = float(np.clip(idle * capacity_wh, 0.1, 1.0))
    screen_w = float(np.clip((screen - idle) * capacity_wh, 0.1, 4.0))
    net_w = float(gain[filling].sum() / hours[filling].sum()) * capacity_wh
    into_w = net_w + idle_w + screen_w * float(np.average(lit[filling], weights=hours[filling]))
    own = _power_spread(-gain[out], loads @ np.array([idle_w, screen_w + idle_w]) / capacity_wh, whose[out])
    return {
        "power": {"idle_w": round(idle_w, 3), "screen_w": round(screen_w, 3), "device_ln_sd": own},
        "battery": {"kind": "tapered", "capacity_wh": capacity_wh, "charge_w": round(into_w / 0.9, 2)},
    }
