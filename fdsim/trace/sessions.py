"""Statistics of on/off intervals: availability, session lengths, time of day, autocorrelation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fdsim.trace.intervals import on_at, total_s

#: The horizons of the leave-within table, s.
HORIZONS_S = (60.0, 120.0, 180.0, 300.0, 600.0, 1200.0)


@dataclass(frozen=True)
class Observation:
    """One device's intervals within the span in which it was observed, s since midnight of its first day."""

    begin_s: float
    end_s: float
    intervals: np.ndarray


@dataclass(frozen=True)
class SessionStats:
    """The statistics of a set of on/off logs."""

    devices: int
    mean_frac: float
    """Mean over devices of the fraction of time on."""
    never_frac: float
    """Fraction of devices that were never on."""
    quantiles: tuple[float, ...]
    """Fraction of time on: 10, 25, 50, 75, 90 % quantiles over devices."""
    session_median_s: float
    session_mean_s: float
    leave_within: dict[float, float]
    """Horizon T → chance that a device that is on now is off within T seconds: E[min(L, T)] / E[L]."""
    by_hour: tuple[float, ...]
    """Fraction of time on in each hour of the day, over all devices."""
    autocorrelation: float
    """Correlation of a device's state with its state 30 minutes later, over all devices and times."""

    @property
    def night_day_swing(self) -> float:
        """The ratio of the highest to the lowest hour."""
        low = min(self.by_hour)
        return max(self.by_hour) / low if low > 0 else float("inf")


def leave_within(lengths_s: np.ndarray, horizon_s: float) -> float:
    """Return the chance that a session found at a random moment ends within the horizon."""
    if not len(lengths_s):
        return float("nan")
    return float(np.minimum(lengths_s, horizon_s).mean() / lengths_s.mean())


def session_stats(observations: list[Observation]) -> SessionStats:
    """Compute the statistics of some devices' intervals."""
    frac = np.array([total_s(o.intervals) / (o.end_s - o.begin_s) for o in observations])
    lengths = np.concatenate([o.intervals[:, 1] - o.intervals[:, 0] for o in observations])
    return SessionStats(
        devices=len(observations),
        mean_frac=float(frac.mean()),
        never_frac=float((frac == 0).mean()),
        quantiles=tuple(np.quantile(frac, [0.1, 0.25, 0.5, 0.75, 0.9]).tolist()),
        session_median_s=float(np.median(lengths)) if len(lengths) else float("nan"),
        session_mean_s=float(lengths.mean()) if len(lengths) else float("nan"),
        leave_within={horizon_s: leave_within(lengths, horizon_s) for horizon_s in HORIZONS_S},
        by_hour=_by_hour(observations),
        autocorrelation=_autocorrelation(observations),
    )


def _by_hour(observations: list[Observation], step_s: float = 300.0) -> tuple[float, ...]:
    on, seen = np.zeros(24), np.zeros(24)
    for o in observations:
        times = np.arange(np.ceil(o.begin_s / step_s) * step_s, o.end_s, step_s)
        hour = (times % 86_400 // 3_600).astype(int)
        seen += np.bincount(hour, minlength=24)
        on += np.bincount(hour, weights=on_at(o.intervals, times), minlength=24)
    with np.errstate(invalid="ignore"):
        return tuple(np.where(seen > 0, on / np.maximum(seen, 1), np.nan).tolist())


def _autocorrelation(observations: list[Observation], lag_s: float = 1800.0) -> float:
    now, later = [], []
    for o in observations:
        times = np.arange(o.begin_s, o.end_s - lag_s, lag_s / 6)
        now.append(on_at(o.intervals, times))
        later.append(on_at(o.intervals, times + lag_s))
    x, y = (np.concatenate(part).astype(float) for part in (now, later))
    if not len(x) or x.std() == 0 or y.std() == 0:
        return float("nan")
    return float(np.corrcoef(x, y)[0, 1])
