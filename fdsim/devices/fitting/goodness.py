"""Goodness of fit: the statistics of a simulated fleet beside those of real phones and their bootstrap intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from fdsim.devices.fitting.statistics import (
    DISTRIBUTIONS,
    PhoneRecord,
    hour_distance,
    ks_distance,
    pair_lifts,
    pooled,
    statistics,
)

#: A statistic within this of the real one is good, also outside the interval.
TOLERANCE_FRAC = 0.15
#: A distance is good up to so many times that between two halves of the real phones, or up to a floor: that of
#: Kolmogorov–Smirnov distances, and that of hour profiles.
HALVES, KS_GOOD, HOURS_GOOD = 1.5, 0.10, 0.15
#: How often a few phones are drawn from a fleet.
_DRAWS = 100
#: Statistics that few phones exaggerate (a ratio of extremes) or understate (a spread), each by a factor.
OF_FEW = ("fullest : emptiest hour", "charging, spread", "wifi, spread")
SCHEMA = pa.schema(
    [
        ("statistic", pa.string()),
        ("is_distance", pa.bool_()),
        ("real", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("simulated", pa.float64()),
        ("good", pa.bool_()),
    ]
)


class Row(NamedTuple):
    """One statistic: of the real phones with its 90 % bootstrap interval over phones, and of the simulated ones.

    What few phones distort is that of as many simulated phones as there are real ones. Phones that are drawn again for
    the interval distort it once more, by as much as simulated ones drawn again do: this factor is taken out of the interval.
    Of a distance, `simulated` is that of the simulated from the real phones, `real` that between two random halves of
    the real ones (NaN where halves cannot be compared), and `high` what is still good.
    """

    statistic: str
    is_distance: bool
    real: float
    low: float
    high: float
    simulated: float
    good: bool

    @property
    def ranges(self) -> list[tuple[float, float]]:
        """The values of `simulated` that are good: one range, or two where they do not meet."""
        interval = self.low, self.high
        if self.is_distance:
            return [interval]
        margin = TOLERANCE_FRAC * abs(self.real)
        first, second = sorted([interval, (self.real - margin, self.real + margin)])
        if second[0] > first[1]:
            return [first, second]
        return [(first[0], max(first[1], second[1]))]


Phones = Sequence[PhoneRecord]


def goodness(
    real: Sequence[PhoneRecord],
    fleets: Sequence[Sequence[PhoneRecord]],
    rng: np.random.Generator,
    *,
    resamples: int = 300,
) -> list[Row]:
    """Compare simulated fleets, one per seed, with real phones; what the logs say nothing about is left out."""
    found = _figures(real)
    drawn = [_figures([real[i] for i in rng.integers(0, len(real), len(real))]) for _ in range(resamples)]
    simulated = [_figures(fleet) for fleet in fleets]
    few = [_of_few(fleet, len(real), rng) for fleet in fleets]
    for one, some in zip(simulated, few, strict=True):
        one.update({name: value for name, (value, _) in some.items()})
    rows = []
    for name, value in found.items():
        again = np.array([one[name] for one in drawn])
        again = again[np.isfinite(again)]
        if not np.isfinite(value) or not len(again):
            continue
        low, high = np.quantile(again, [0.05, 0.95]).tolist()
        if name in OF_FEW:
            factor = float(np.mean([once / twice for once, twice in (some[name] for some in few)]))
            if np.isfinite(factor):
                low, high = low * factor, high * factor
        mean = float(np.mean([one[name] for one in simulated]))
        good = low <= mean <= high or abs(mean - value) <= TOLERANCE_FRAC * abs(value)
        rows.append(Row(name, False, value, low, high, mean, bool(good)))
    for name in DISTRIBUTIONS:
        if len(pooled(real, name)):
            rows.append(_distance_row(f"KS {name}", partial(_ks, name), real, fleets, rng, floor=KS_GOOD))
    if np.isfinite(hour_distance(real, real)):
        rows.append(_distance_row("hour profile", hour_distance, real, fleets, rng, floor=HOURS_GOOD))
    return rows


def _figures(phones: Phones) -> dict[str, float]:
    return {**statistics(phones), **pair_lifts(phones)}


def _ks(name: str, first: Phones, second: Phones) -> float:
    return ks_distance(pooled(first, name), pooled(second, name))


def _of_few(fleet: Phones, count: int, rng: np.random.Generator) -> dict[str, tuple[float, float]]:
    """Return what few phones distort, as it is among `count` phones of a fleet, and among as many drawn from those again."""
    once, twice = [], []
    for _ in range(_DRAWS):
        few = [fleet[i] for i in rng.permutation(len(fleet))[:count]]
        once.append(statistics(few))
        twice.append(statistics([few[i] for i in rng.integers(0, len(few), len(few))]))
    return {name: (_median(once, name), _median(twice, name)) for name in OF_FEW}


def _median(found: Sequence[dict[str, float]], name: str) -> float:
    known = [one[name] for one in found if np.isfinite(one[name]) and one[name] > 0.0]
    return float(np.median(known)) if known else float("nan")


def _distance_row(
    name: str,
    distance: Callable[[Phones, Phones], float],
    real: Phones,
    fleets: Sequence[Phones],
    rng: np.random.Generator,
    *,
    floor: float,
    splits: int = 40,
) -> Row:
    between = []
    for _ in range(splits):
        order, half = rng.permutation(len(real)), len(real) // 2
        first, second = ([real[i] for i in part] for part in (order[:half], order[half:]))
        between.append(distance(first, second))
    known = [value for value in between if np.isfinite(value)]
    halves = float(np.mean(known)) if known else float("nan")
    most = max(floor, HALVES * halves) if known else floor
    found = float(np.mean([distance(real, fleet) for fleet in fleets]))
    return Row(name, True, halves, 0.0, most, found, found <= most)


def as_table(rows: Sequence[Row]) -> pa.Table:
    """Return the rows as an Arrow table."""
    return pa.Table.from_pylist([row._asdict() for row in rows], schema=SCHEMA)
