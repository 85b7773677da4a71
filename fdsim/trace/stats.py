"""Statistics of a trace.parquet: who drops out, when, why, for how long, and whether friends are left."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fdsim.data.coupling import mutual_information
from fdsim.trace import Cause, Outcome, Trace

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


@dataclass(frozen=True)
class TraceStats:
    """What a trace looks like. Rates are shares of the clients that were asked."""

    clients: int
    rounds: int
    dropout_rate: float
    dropout_by_round: np.ndarray
    """[T] NaN where nobody was asked."""
    causes: dict[str, float]
    """Cause → share of all dropouts."""
    participation: np.ndarray
    """[K] share of the rounds a client was asked for that it completed; NaN for a client never asked."""
    never_frac: float
    """Share of clients that completed no round."""
    empty_rounds: int
    present_runs: dict[int, int]
    """Length in rounds → number of runs of consecutive completed rounds."""
    absent_runs: dict[int, int]
    leave_within: dict[int, float]
    """n → chance that a client that completed a round misses one of the next n."""
    by_hour: np.ndarray
    """[24] completion rate by the hour in which the round started; NaN where no round did."""
    autocorrelation: np.ndarray
    """[lags] correlation of completion with completion so many rounds later, lag 1 first."""
    friend_present_frac: float | None
    """Share of dropouts with an active client of the same cluster in that round; None without clusters."""
    mutual_information_bits: float | None
    """Between cluster and completion; None without clusters."""

    @property
    def participation_quantiles(self) -> tuple[float, ...]:
        """10, 25, 50, 75 and 90 % quantiles of the clients' participation."""
        known = self.participation[~np.isnan(self.participation)]
        return (
            tuple(np.quantile(known, QUANTILES).tolist()) if len(known) else (float("nan"),) * len(QUANTILES)
        )


def trace_stats(trace: Trace, *, lags: int = 10) -> TraceStats:
    """Compute the statistics of a trace, reading its rounds one by one."""
    rounds, clients = trace.rounds, trace.clients
    completed = np.zeros((rounds, clients), dtype=bool)
    asked = np.zeros((rounds, clients), dtype=bool)
    hour = np.zeros(rounds, dtype=int)
    causes = np.zeros(len(Cause), dtype=np.int64)
    friends: list[tuple[int, int]] = []
    for index, r in enumerate(trace):
        completed[index] = r.outcome == Outcome.completed
        asked[index] = r.outcome != Outcome.not_selected
        hour[index] = int(r.round_start_s % 86_400 // 3_600)
        causes += np.bincount(r.cause[r.cause >= 0], minlength=len(Cause))
        if trace.true_cluster is not None:
            present = np.isin(trace.true_cluster[r.dropped], trace.true_cluster[r.completed])
            friends.append((int(present.sum()), len(present)))
    times_asked = asked.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        participation = np.where(times_asked > 0, completed.sum(axis=0) / times_asked, np.nan)
        by_round = np.where(asked.any(axis=1), 1 - completed.sum(axis=1) / asked.sum(axis=1), np.nan)
        in_hour = np.bincount(hour, weights=asked.sum(axis=1), minlength=24)
        by_hour = np.where(
            in_hour > 0, np.bincount(hour, weights=completed.sum(axis=1), minlength=24) / in_hour, np.nan
        )
    dropped = int(asked.sum() - completed.sum())
    missing = sum(n for _, n in friends)
    return TraceStats(
        clients=clients,
        rounds=rounds,
        dropout_rate=dropped / max(1, int(asked.sum())),
        dropout_by_round=by_round,
        causes={
            Cause(c).name: causes[c] / max(1, dropped)
            for c in np.argsort(-causes, kind="stable")
            if causes[c]
        },
        participation=participation,
        never_frac=float((completed.sum(axis=0) == 0).mean()),
        empty_rounds=int((~completed.any(axis=1)).sum()),
        present_runs=_runs(completed),
        absent_runs=_runs(~completed),
        leave_within={n: _leave_within(completed, n) for n in (1, 2, 3, 5, 10, 20) if n < rounds},
        by_hour=by_hour,
        autocorrelation=_autocorrelation(completed, min(lags, rounds - 1)),
        friend_present_frac=None
        if trace.true_cluster is None
        else sum(p for p, _ in friends) / max(1, missing),
        mutual_information_bits=(
            None if trace.true_cluster is None else mutual_information(trace.true_cluster, participation)
        ),
    )


def _runs(on: np.ndarray) -> dict[int, int]:
    """Count runs of True down the columns by their length."""
    padded = np.zeros((len(on) + 2, on.shape[1]), dtype=np.int8)
    padded[1:-1] = on
    change = np.diff(padded, axis=0)
    starts, ends = np.nonzero(change.T == 1), np.nonzero(change.T == -1)
    lengths, counts = np.unique(ends[1] - starts[1], return_counts=True)
    return dict(zip(lengths.tolist(), counts.tolist(), strict=True))


def _leave_within(completed: np.ndarray, n: int) -> float:
    """Chance that a client present in a round is absent in at least one of the next n."""
    stays = np.ones((len(completed) - n, completed.shape[1]), dtype=bool)
    for lag in range(1, n + 1):
        stays &= completed[lag : len(completed) - n + lag]
    now = completed[: len(completed) - n]
    return float(1 - (now & stays).sum() / now.sum()) if now.any() else float("nan")


def _autocorrelation(completed: np.ndarray, lags: int) -> np.ndarray:
    centred = completed - completed.mean()
    variance = float((centred**2).mean())
    if variance == 0:
        return np.full(lags, np.nan)
    return np.array([float((centred[lag:] * centred[:-lag]).mean()) / variance for lag in range(1, lags + 1)])
