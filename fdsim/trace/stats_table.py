"""Statistics as one long table: table, key, value; for the terminal and for Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fdsim.files import UnfinishedFile, storage_errors
from fdsim.trace import open_trace
from fdsim.trace.availability import is_availability, read_availability
from fdsim.trace.sessions import Observation, SessionStats, session_stats
from fdsim.trace.stats import QUANTILES, TraceStats, trace_stats

SCHEMA = pa.schema([("table", pa.string()), ("key", pa.string()), ("value", pa.float64())])
Row = tuple[str, str, float]


def stats_rows(path: Path | str) -> list[Row]:
    """The statistics of a trace.parquet, or of an availability file, as rows (table, key, value)."""
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
    yield "overview", "fullest hour : emptiest hour", s.night_day_swing
    yield "overview", "autocorrelation after 30 min", s.autocorrelation
    for q, value in zip(QUANTILES, s.quantiles, strict=True):
        yield "availability per device", f"{q:.0%} quantile", value
    for horizon_s, value in s.leave_within.items():
        yield "leaves within", f"{horizon_s:g} s", value
    for hour, value in enumerate(s.by_hour):
        yield "available by hour", f"{hour:02d}", value


def _trace_rows(s: TraceStats) -> Iterator[Row]:
    yield "overview", "clients", s.clients
    yield "overview", "rounds", s.rounds
    yield "overview", "dropout rate", s.dropout_rate
    yield "overview", "never participating", s.never_frac
    yield "overview", "empty rounds", s.empty_rounds
    if s.friend_present_frac is not None:
        yield "overview", "dropouts with a friend present", s.friend_present_frac
    if s.mutual_information_bits is not None:
        yield "overview", "cluster tells about completion, bits", s.mutual_information_bits
    for cause, share in s.causes.items():
        yield "dropout by cause", cause, share
    for q, value in zip(QUANTILES, s.participation_quantiles, strict=True):
        yield "participation per client", f"{q:.0%} quantile", value
    for n, value in s.leave_within.items():
        yield "misses a round within", f"{n} rounds", value
    for lag, value in enumerate(s.autocorrelation, 1):
        yield "autocorrelation", f"{lag} rounds", float(value)
    for name, runs in (("present", s.present_runs), ("absent", s.absent_runs)):
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
    table = pa.Table.from_arrays([pa.array(column) for column in zip(*rows, strict=True)], names=SCHEMA.names)
    with storage_errors(path, resumable=False), UnfinishedFile(path) as waiting:
        pq.write_table(table.cast(SCHEMA), waiting)


#: Tables too long for a terminal; they are in the Parquet file.
_LONG = ("dropout by round", "participation by client", "runs present", "runs absent")


def show(rows: list[Row]) -> None:
    """Print the rows as one table per kind of statistic."""
    from rich.console import Console
    from rich.table import Table as RichTable

    console = Console()
    for name in dict.fromkeys(table for table, _, _ in rows):
        if name in _LONG:
            continue
        shown = RichTable(name, "", title_justify="left", box=None, pad_edge=False)
        for _, key, value in (row for row in rows if row[0] == name):
            shown.add_row(key, f"{value:.4g}")
        console.print(shown)
        console.print()
