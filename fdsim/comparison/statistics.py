"""The statistics of a comparison, computed by scipy: paired differences, censored costs, recovered gap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from fdsim.comparison.measures import Cost
from fdsim.rng import stream

CONFIDENCE = 0.95
_RESAMPLES = 9999
#: With fewer repeats the corrections of the accelerated bootstrap are noise; plain percentiles are used.
_FEWEST_FOR_BCA = 8


@dataclass(frozen=True)
class Interval:
    """A confidence interval; NaN where the data cannot give one."""

    low: float
    high: float

    def within(self, lowest: float, highest: float) -> Interval:
        """Return the part of the interval in which the quantity can lie, which is just as likely to hold it."""
        return Interval(float(np.clip(self.low, lowest, highest)), float(np.clip(self.high, lowest, highest)))


NO_INTERVAL = Interval(float("nan"), float("nan"))


@dataclass(frozen=True)
class Sample:
    """Mean and spread of one measure over the repeats that have it."""

    n: int
    mean: float
    sd: float
    interval: Interval
    """Of the mean, by Student's t."""


@dataclass(frozen=True)
class PairedDifference:
    """A measure's paired difference to the baseline: positive where the strategy has more of it."""

    n: int
    mean: float
    sd: float
    t_interval: Interval
    bootstrap_interval: Interval
    p_value: float
    """Two-sided, paired t test; NaN with fewer than two pairs or no spread at all."""


def describe(values: Sequence[float] | np.ndarray) -> Sample:
    """Describe the known values; `n` is their number."""
    known = _known(values)
    n = len(known)
    if not n:
        return Sample(0, float("nan"), float("nan"), NO_INTERVAL)
    sd = float(known.std(ddof=1)) if n > 1 else float("nan")
    return Sample(n, float(known.mean()), sd, _t_interval(known))


def paired_difference(
    values: Sequence[float] | np.ndarray, baseline: Sequence[float] | np.ndarray
) -> PairedDifference:
    """Compare two lists pair by pair; pairs with an unknown side (NaN) are left out."""
    known = _known(np.asarray(values, dtype=np.float64) - np.asarray(baseline, dtype=np.float64))
    n = len(known)
    if not n:
        return PairedDifference(0, float("nan"), float("nan"), NO_INTERVAL, NO_INTERVAL, float("nan"))
    sample = describe(known)
    p_value = float(stats.ttest_1samp(known, 0.0).pvalue) if n > 1 and not _all_equal(known) else float("nan")
    return PairedDifference(n, sample.mean, sample.sd, sample.interval, _bootstrap([known], np.mean), p_value)


def gap_recovered(values: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> tuple[float, Interval]:
    """Return the fraction of the gap between two baselines that a strategy closes.

    It is mean(x − lower) / mean(upper − lower).

    A ratio of means, not a mean of ratios: one seed with a vanishing gap must not dominate. Unknown (NaN) where the
    upper baseline is not ahead of the lower one: there is no gap to recover.
    """
    together = np.stack([np.asarray(side, dtype=np.float64) for side in (values, lower, upper)])
    x, low, high = together[:, ~np.isnan(together).any(axis=0)]

    def frac(x: np.ndarray, low: np.ndarray, high: np.ndarray, axis: int = -1) -> Any:
        gap = np.asarray((high - low).mean(axis=axis))
        # A resample without a gap has no fraction; infinity keeps its place among the percentiles.
        return np.divide((x - low).mean(axis=axis), gap, out=np.full_like(gap, np.inf), where=gap > 0)

    if not len(x) or not (high - low).mean() > 0:
        return float("nan"), NO_INTERVAL
    return float(frac(x, low, high)), _bootstrap([x, low, high], frac, method="percentile")


@dataclass(frozen=True)
class CostSummary:
    """The cost of reaching the target over the repeats, including those that never reached it."""

    n: int
    reached: int
    median: float
    """By Kaplan and Meier; infinite where fewer than half of the repeats are known to have reached it."""
    restricted_mean: float
    """Mean cost if observation ended at `horizon`: area under the Kaplan–Meier curve up to there."""
    horizon: float
    watched: float
    """The largest cost observed, reached or not: an infinite median is known to be larger."""


def summarise_costs(costs: Sequence[Cost], horizon: float) -> CostSummary:
    """Summarise costs, some of which are only known to exceed what was observed."""
    if not costs:
        return CostSummary(0, 0, float("nan"), float("nan"), horizon, float("nan"))
    reached = [cost.value for cost in costs if cost.reached]
    beyond = [cost.value for cost in costs if not cost.reached]
    values = np.array([cost.value for cost in costs])
    if not reached:
        return CostSummary(len(costs), 0, float("inf"), horizon, horizon, float(values.max()))
    sample = stats.CensoredData(uncensored=np.array(reached), right=np.array(beyond))
    survival = stats.ecdf(sample).sf
    below = survival.quantiles[survival.probabilities <= 0.5 + 1e-12]
    median = float(below[0]) if len(below) else float("inf")
    return CostSummary(
        n=len(costs),
        reached=len(reached),
        median=median,
        restricted_mean=_area(survival.quantiles, survival.probabilities, horizon),
        horizon=horizon,
        watched=float(values.max()),
    )


def restricted(costs: Sequence[Cost], horizon: float) -> np.ndarray:
    """Return min(cost, horizon) for each cost where that is known, else NaN.

    A repeat observed to the horizon without reaching the target counts as the horizon itself: a lower bound, equal for
    all, so that paired differences understate the loss of the slower side instead of dropping it.
    """
    known = [min(c.value, horizon) if c.reached or c.value >= horizon else float("nan") for c in costs]
    return np.array(known, dtype=np.float64)


def _area(quantiles: np.ndarray, survival: np.ndarray, horizon: float) -> float:
    """Integrate a step function that starts at 1 and takes the value survival[i] from quantiles[i] on."""
    steps = np.minimum(np.concatenate([[0.0], quantiles, [horizon]]), horizon)
    return float(np.sum(np.diff(steps) * np.concatenate([[1.0], survival])))


def _known(values: Sequence[float] | np.ndarray) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64)
    return np.asarray(array[~np.isnan(array)])


def _all_equal(values: np.ndarray) -> bool:
    # Differences of equal accuracies differ in the last bit, which is not a spread.
    return bool(np.ptp(values) <= 1e-12 * max(1.0, float(np.abs(values).max())))


def _t_interval(values: np.ndarray) -> Interval:
    if len(values) < 2:
        return NO_INTERVAL
    if _all_equal(values):
        return Interval(float(values[0]), float(values[0]))
    low, high = stats.ttest_1samp(values, 0.0).confidence_interval(CONFIDENCE)
    return Interval(float(low), float(high))


def _bootstrap(samples: list[np.ndarray], statistic: Callable[..., Any], method: str = "") -> Interval:
    """Resample repeats, with a random stream of its own so that a comparison is reproducible to the last digit."""
    n = len(samples[0])
    if n < 2:
        return NO_INTERVAL
    if all(_all_equal(sample) for sample in samples):
        same = float(statistic(*samples))
        return Interval(same, same)
    # Resamples may be infinite (see `gap_recovered`), which only scipy's unused standard error minds.
    with np.errstate(invalid="ignore"):
        found = stats.bootstrap(
            samples,
            statistic,
            paired=len(samples) > 1,
            vectorized=True,
            n_resamples=_RESAMPLES,
            confidence_level=CONFIDENCE,
            method=method or ("BCa" if n >= _FEWEST_FOR_BCA else "percentile"),
            rng=stream(0, "bootstrap"),
        ).confidence_interval
    return Interval(float(found.low), float(found.high))
