"""Goodness of fit: the statistics of a simulated fleet beside those of real phones and their bootstrap intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from fdsim.devices.fitting.statistics import DISTRIBUTIONS, PhoneRecord, ks_distance, pooled, statistics

#: A statistic within this of the real one is good, also outside the interval.
TOLERANCE_FRAC = 0.15
#: A Kolmogorov–Smirnov distance is good up to this, or up to so many times that between two halves of the phones.
KS_GOOD, KS_HALVES = 0.10, 1.5
SWING = "fullest : emptiest hour"
SCHEMA = pa.schema(
    [
        ("statistic", pa.string()),
        ("real", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("simulated", pa.float64()),
        ("good", pa.bool_()),
    ]
)


class Row(NamedTuple):
    """One statistic: of the real phones with its 90 % bootstrap interval over phones, and of the simulated ones.

    For a KS distance, `real` is that between two random halves of the phones, and `high` what is still good.
    """

    statistic: str
    real: float
    low: float
    high: float
    simulated: float
    good: bool


def goodness(
    real: Sequence[PhoneRecord],
    fleets: Sequence[Sequence[PhoneRecord]],
    rng: np.random.Generator,
    *,
    resamples: int = 300,
) -> list[Row]:
    """Compare simulated fleets, one per seed, with real phones; what the logs say nothing about is left out."""
    found = statistics(real)
    drawn = [statistics([real[i] for i in rng.integers(0, len(real), len(real))]) for _ in range(resamples)]
    simulated = [statistics(fleet) for fleet in fleets]
    swings = [_swing_of_few(fleet, len(real), rng) for fleet in fleets]
    for one, swing in zip(simulated, swings, strict=True):
        one[SWING] = swing
    rows = []
    for name, value in found.items():
        again = np.array([one[name] for one in drawn])
        again = again[np.isfinite(again)]
        if not np.isfinite(value) or not len(again):
            continue
        low, high = np.quantile(again, [0.05, 0.95]).tolist()
        mean = float(np.mean([one[name] for one in simulated]))
        good = low <= mean <= high or abs(mean - value) <= TOLERANCE_FRAC * abs(value)
        rows.append(Row(name, value, low, high, mean, bool(good)))
    for name in DISTRIBUTIONS:
        if row := _ks_row(name, real, fleets, rng):
            rows.append(row)
    return rows


def _swing_of_few(fleet: Sequence[PhoneRecord], count: int, rng: np.random.Generator) -> float:
    """Return the swing as it is among as few phones as the real ones: chance exaggerates it, the more the fewer."""
    few = [statistics([fleet[i] for i in rng.permutation(len(fleet))[:count]])[SWING] for _ in range(60)]
    known = [value for value in few if np.isfinite(value)]
    return float(np.median(known)) if known else float("nan")


def _ks_row(
    name: str,
    real: Sequence[PhoneRecord],
    fleets: Sequence[Sequence[PhoneRecord]],
    rng: np.random.Generator,
    *,
    splits: int = 40,
) -> Row | None:
    values = pooled(real, name)
    if not len(values):
        return None
    between = []
    for _ in range(splits):
        order, half = rng.permutation(len(real)), len(real) // 2
        first, second = ([real[i] for i in part] for part in (order[:half], order[half:]))
        between.append(ks_distance(pooled(first, name), pooled(second, name)))
    halves = float(np.nanmean(between))
    most = max(KS_GOOD, KS_HALVES * halves)
    distance = float(np.mean([ks_distance(values, pooled(fleet, name)) for fleet in fleets]))
    return Row(f"KS {name}", halves, 0.0, most, distance, distance <= most)


def as_table(rows: Sequence[Row]) -> pa.Table:
    """Return the rows as an Arrow table."""
    return pa.Table.from_pylist([row._asdict() for row in rows], schema=SCHEMA)
