"""Statistics of a trace.parquet: who drops out, when, why, for how long, and whether friends stay active."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fdsim.data.coupling import mutual_information
from fdsim.files import UnfinishedFile, storage_errors
from fdsim.trace import Cause, Outcome, Trace, open_trace
from fdsim.trace.availability import is_availability, read_availability
from fdsim.trace.sessions import Observation, SessionStats, session_stats

if TYPE_CHECKING:
    from rich.console import Console

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
#: One row per number, for the terminal and for Parquet.
STATS_SCHEMA = pa.schema([("table", pa.string()), ("key", pa.string()), ("value", pa.float64())])
Row = tuple[str, str, float]


@dataclass(frozen=True)
class TraceStats:
    """The statistics of a trace. Rates are fractions of the selected clients."""

    clients: int
    rounds: int
    dropout_rate: float
    dropout_by_round: np.ndarray
    """[T] NaN where no client was selected."""
    causes: dict[str, float]
    """Cause → fraction of all dropouts."""
    participation: np.ndarray
    """[K] fraction of the rounds a client was selected for that it completed; NaN if never selected."""
    never_frac: float
    """Fraction of clients that completed no round."""
    empty_rounds: int
    completed_runs: dict[int, int]
    """Length in rounds → number of runs of consecutive completed rounds."""
    missed_runs: dict[int, int]
    leave_within: dict[int, float]
    """n → chance that a client that completed a round misses one of the next n."""
    by_hour: np.ndarray
    """[24] completion rate by the hour in which the round started; NaN where no round did."""
    autocorrelation: np.ndarray
    """[lags] autocorrelation of completion, lag 1 round first."""
    friend_present_frac: float | None
    """Fraction of dropouts with an active client of the same cluster in that round; None without clusters."""
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
    selected = np.zeros((rounds, clients), dtype=bool)
    hour = np.zeros(rounds, dtype=int)
    causes = np.zeros(len(Cause), dtype=np.int64)
    friends: list[tuple[int, int]] = []
    for index, r in enumerate(trace):
        completed[index] = r.outcome == Outcome.completed
        selected[index] = r.outcome != Outcome.not_selected
        hour[index] = int(r.round_start_s % 86_400 // 3_600)
        causes += np.bincount(r.cause[r.cause >= 0], minlength=len(Cause))
        if trace.true_cluster is not None:
            has_friend = np.isin(trace.true_cluster[r.dropped], trace.true_cluster[r.completed])
            friends.append((int(has_friend.sum()), len(has_friend)))
    times_selected = selected.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        participation = np.where(times_selected > 0, completed.sum(axis=0) / times_selected, np.nan)
        by_round = np.where(selected.any(axis=1), 1 - completed.sum(axis=1) / selected.sum(axis=1), np.nan)
        in_hour = np.bincount(hour, weights=selected.sum(axis=1), minlength=24)
        by_hour = np.where(
            in_hour > 0, np.bincount(hour, weights=completed.sum(axis=1), minlength=24) / in_hour, np.nan
        )
    dropped = int(selected.sum() - completed.sum())
    missing = sum(n for _, n in friends)
    return TraceStats(
        clients=clients,
        rounds=rounds,
        dropout_rate=dropped / max(1, int(selected.sum())),
        dropout_by_round=by_round,
        causes={
            Cause(c).name: causes[c] / max(1, dropped)
            for c in np.argsort(-causes, kind="stable")
            if causes[c]
        },
        participation=participation,
        never_frac=float((completed.sum(axis=0) == 0).mean()),
        empty_rounds=int((~completed.any(axis=1)).sum()),
        completed_runs=_runs(completed),
        missed_runs=_runs(~completed),
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
    """Return the chance that a client which completed a round misses at least one of the next n."""
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


def stats_rows(path: Path | str) -> list[Row]:
    """Return the statistics of a trace.parquet, or of an availability file, as rows (table, key, value)."""
    if is_availability(path):
        seen = read_availability(path)
        found = session_stats([Observation(d.begin_s, d.end_s, d.eligible) for d in seen])
        return list(_session_rows(found))
    return list(_trace_rows(trace_stats(open_trace(path))))


def _session_rows(s: SessionStats) -> Iterator[Row]:
    yield "overview", "devices", s.devices
    yield "overview", "mean availability", s.mean_frac
    yield "overview", "never available", s.never_frac
    yield "overview", "session median, s", s.session_median_s
    yield "overview", "session mean, s", s.session_mean_s
    yield "overview", "highest hour : lowest hour", s.night_day_swing
    yield "overview", "autocorrelation after 30 min", s.autocorrelation
    for q, value in zip(QUANTILES, s.quantiles, strict=True):
        yield "availability per device", f"{q:.0%} quantile", value
    for horizon_s, value in s.leave_within.items():
        yield "becomes unavailable within", f"{horizon_s:g} s", value
    for hour, value in enumerate(s.by_hour):
        yield "available by hour", f"{hour:02d}", value


def _trace_rows(s: TraceStats) -> Iterator[Row]:
    yield "overview", "clients", s.clients
    yield "overview", "rounds", s.rounds
    yield "overview", "dropout rate", s.dropout_rate
    yield "overview", "never participating", s.never_frac
    yield "overview", "empty rounds", s.empty_rounds
    if s.friend_present_frac is not None:
        yield "overview", "dropouts with a friend active", s.friend_present_frac
    if s.mutual_information_bits is not None:
        yield "overview", "mutual information of cluster and completion, bits", s.mutual_information_bits
    for cause, frac in s.causes.items():
        yield "dropout by cause", cause, frac
    for q, value in zip(QUANTILES, s.participation_quantiles, strict=True):
        yield "participation per client", f"{q:.0%} quantile", value
    for n, value in s.leave_within.items():
        yield "misses a round within", f"{n} rounds", value
    for lag, value in enumerate(s.autocorrelation, 1):
        yield "autocorrelation", f"{lag} rounds", float(value)
    for name, runs in (("completed", s.completed_runs), ("missed", s.missed_runs)):
        for length, count in runs.items():
            yield f"runs {name}", f"{length} rounds", count
    for hour, value in enumerate(s.by_hour):
        if not np.isnan(value):
            yield "completion by hour", f"{hour:02d}", float(value)
    for index, value in enumerate(s.dropout_by_round):
        yield "dropout by round", str(index), float(value)
    for client, value in enumerate(s.participation):
        yield "participation by client", str(client), float(value)


def write_stats(rows: list[Row], path: Path | str) -> None:
    """Write the rows as Parquet; the file appears only when complete."""
    path = Path(path)
    table = pa.Table.from_arrays(
        [pa.array(column) for column in zip(*rows, strict=True)], names=STATS_SCHEMA.names
    )
    with storage_errors(path, resumable=False), UnfinishedFile(path) as temporary:
        pq.write_table(table.cast(STATS_SCHEMA), temporary)


#: Tables too long for a terminal; they are in the Parquet file.
_LONG = ("dropout by round", "participation by client", "runs completed", "runs missed")


def show(rows: list[Row], console: Console) -> None:
    """Print the rows as one table per kind of statistic."""
    from rich.table import Table as RichTable

    for name in dict.fromkeys(table for table, _, _ in rows):
        if name in _LONG:
            continue
        shown = RichTable(name, "", title_justify="left", box=None, pad_edge=False)
        for _, key, value in (row for row in rows if row[0] == name):
            shown.add_row(key, f"{value:.4g}")
        console.print(shown)
        console.print()
