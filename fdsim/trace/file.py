"""Trace files: written round by round, opened by their metadata, read one row group at a time."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fdsim.errors import TraceError
from fdsim.files import SEAL_BLANK, SEAL_KEY, SEAL_MARK, ParquetStream, file_hash, seal_broken
from fdsim.trace.availability import AVAILABILITY
from fdsim.trace.round import ALL_LISTED_UP_TO, NONE, TRACE_VERSION, Outcome, TraceRound
from fdsim.trace.rows import SCHEMA, listed_rounds_of, rounds_of, to_table, typed

if TYPE_CHECKING:
    import pandas as pd

#: Of more clients than this no run can keep a row.
MOST_CLIENTS = 10**9
#: What reading a Parquet file that is damaged or somebody else's may raise.
UNREADABLE = (
    *(pa.ArrowException, OSError, ValueError, KeyError, TypeError, OverflowError, IndexError),
    *(RecursionError, MemoryError),
)


@dataclass(frozen=True)
class Trace:
    """An open trace file: its size and metadata are known, its rounds are read on demand."""

    path: Path
    clients: int
    rounds: int
    made_by: str
    true_cluster: np.ndarray | None
    lists_all: bool = True
    """Whether every client has a row in every round; otherwise a client without one was not selected."""

    def __iter__(self) -> Iterator[TraceRound]:
        """Yield the rounds in order, holding one row group at a time; raise TraceError on an invalid round."""
        previous: TraceRound | None = None
        for trace_round in self._read():
            _check(trace_round, previous, self.path)
            yield trace_round
            previous = trace_round

    def to_pandas(self) -> pd.DataFrame:
        """Return the whole trace as one DataFrame, one row per round and client."""
        frame: pd.DataFrame = pq.read_table(self.path).to_pandas()
        return frame

    def _read(self) -> Iterator[TraceRound]:
        rest: pa.Table | None = None
        try:
            with pq.ParquetFile(self.path) as file:
                for group in range(file.num_row_groups):
                    table = typed(file.read_row_group(group, columns=SCHEMA.names))
                    rest = table if rest is None else pa.concat_tables([rest, table])
                    if self.lists_all:
                        whole = len(rest) // self.clients * self.clients
                        yield from rounds_of(rest.slice(0, whole), self.clients, self.path)
                    else:
                        # The last round may go on in the next group.
                        numbers = rest["round"].to_numpy()
                        whole = int(np.searchsorted(numbers, numbers[-1]))
                        yield from listed_rounds_of(rest.slice(0, whole), self.clients, self.path)
                    rest = rest.slice(whole)
        except UNREADABLE as error:
            raise TraceError(str(self.path), f"damaged ({error})") from None
        if rest is not None and len(rest) and not self.lists_all:
            yield from listed_rounds_of(rest, self.clients, self.path)
        elif rest is not None and len(rest):
            raise TraceError(str(self.path), "the last round does not have one row per client")

    @property
    def content_hash(self) -> str:
        """A hash of the file's bytes: equal hashes mean equal traces."""
        return file_hash(self.path)


def _check(r: TraceRound, previous: TraceRound | None, path: Path) -> None:
    """Raise TraceError if a round contradicts itself or the one before it."""
    place = f"{path}, round {r.round}"
    if r.round != (0 if previous is None else previous.round + 1):
        raise TraceError(place, "rounds must count up from 0 without a gap")
    if previous is not None and r.round_start_s < previous.round_start_s:
        raise TraceError(
            place, f"time runs back: it starts at {r.round_start_s:g} s, before the round before it"
        )
    if not r.round_start_s <= r.round_end_s:
        raise TraceError(place, f"it ends at {r.round_end_s:g} s, before it starts at {r.round_start_s:g} s")
    wrong = {
        "has no outcome": r.outcome == NONE,
        "dropped out without a cause": (r.outcome == Outcome.dropped) & (r.cause == NONE),
        "has a cause but did not drop out": (r.outcome != Outcome.dropped) & (r.cause != NONE),
        "has a progress outside [0, 1]": ~((r.progress >= 0) & (r.progress <= 1)),
        "ends before it starts": r.end_s < r.start_s,
    }
    for problem, clients in wrong.items():
        if clients.any():
            raise TraceError(f"{place}, client {int(np.argmax(clients))}", problem)


def is_trace(path: Path | str) -> bool:
    """Tell whether a file is Parquet with the columns of a trace."""
    try:
        names = pq.read_schema(path).names
    except UNREADABLE:
        return False
    return {"round", "client", "outcome"} <= set(names)


def open_trace(path: Path | str) -> Trace:
    """Open a trace.parquet, checking that it is one and that this fdsim can read it.

        fdsim.open_trace("runs/quickstart/trace.parquet").to_pandas()

    Iterating over it gives its rounds, one at a time.
    """
    path = Path(path)
    if not path.is_file():
        raise TraceError(
            str(path), "there is no such file", "`fdsim trace make SCENARIO --out FILE` makes one"
        )
    try:
        if seal_broken(path):
            raise TraceError(
                str(path),
                "the file is damaged: its bytes are not those that were written",
                "restore it from a copy, or make it again",
            )
        with pq.ParquetFile(path) as file:
            return _opened(file, path)
    except UNREADABLE as error:
        raise TraceError(str(path), f"not a readable Parquet file ({error})") from None


def _opened(file: pq.ParquetFile, path: Path) -> Trace:
    metadata = {k.decode(): v.decode() for k, v in (file.schema_arrow.metadata or {}).items()}
    version = metadata.get("fdsim_schema_version", "0")
    if not version.isdigit() or int(version) > TRACE_VERSION:
        raise TraceError(
            str(path), f"written by a newer fdsim (schema {version})", "upgrade fdsim to read it"
        )
    missing = [name for name in SCHEMA.names if name not in file.schema_arrow.names]
    if missing and metadata.get("fdsim_kind") == AVAILABILITY:
        raise TraceError(
            str(path),
            "an imported log of devices, not a trace of rounds",
            f'replay it in a [[fleet]] group: connectivity = {{ kind = "replay", path = "{path}" }}, '
            "usage and battery likewise",
        )
    if missing:
        raise TraceError(str(path), f"not a trace: column '{missing[0]}' is missing")
    rows = file.metadata.num_rows
    if not rows:
        raise TraceError(str(path), "the trace has no rows")
    lists_all = "fdsim_clients" not in metadata
    if lists_all:
        first = file.read_row_group(0, columns=["round", "client"])
        clients = _clients_in_first_round(first, file)
        if rows % clients:
            raise TraceError(str(path), f"{rows} rows are not a whole number of rounds of {clients} clients")
        rounds = rows // clients
    else:
        clients = int(metadata["fdsim_clients"])
        if not 0 < clients <= MOST_CLIENTS:
            raise TraceError(str(path), f"it claims to be of {metadata['fdsim_clients'][:20]} clients")
        last = file.read_row_group(file.num_row_groups - 1, columns=["round"])
        rounds = int(last["round"][-1].as_py()) + 1
    clusters = json.loads(metadata.get("fdsim_true_cluster") or "null")
    if clusters is not None and not _one_cluster_each(clusters, clients):
        raise TraceError(str(path), f"its metadata do not name a cluster for each of {clients} clients")
    return Trace(
        path=path,
        clients=clients,
        rounds=rounds,
        lists_all=lists_all,
        made_by=metadata.get("fdsim_made_by", ""),
        true_cluster=None if clusters is None else np.array(clusters, dtype=np.int64),
    )


def _one_cluster_each(clusters: object, clients: int) -> bool:
    return (
        isinstance(clusters, list)
        and len(clusters) == clients
        and all(type(each) is int and -1 <= each < 2**31 for each in clusters)
    )


def _clients_in_first_round(first: pa.Table, file: pq.ParquetFile) -> int:
    rounds = first["round"].to_numpy()
    changes = np.flatnonzero(rounds != rounds[0])
    if len(changes):
        return int(changes[0])
    if file.num_row_groups == 1:
        return len(rounds)
    whole = file.read(columns=["round"])["round"].to_numpy()
    changes = np.flatnonzero(whole != whole[0])
    return int(changes[0]) if len(changes) else len(whole)


def write_trace(
    path: Path | str,
    rounds: Iterable[TraceRound],
    *,
    made_by: str = "",
    true_cluster: np.ndarray | None = None,
    rows_per_group: int = 100_000,
    on_round: Callable[[TraceRound], None] = lambda trace_round: None,
) -> Trace:
    """Write rounds as they come to a file that appears only when complete, and open it.

    `made_by` is the content hash of what made the trace; `true_cluster` [K] is stored when known. Memory stays at
    `rows_per_group` rows whatever the length of the trace. `on_round` is called with each round.
    """
    metadata: dict[str | bytes, str | bytes] = {
        "fdsim_schema_version": str(TRACE_VERSION),
        "fdsim_made_by": made_by,
        SEAL_KEY: SEAL_MARK + SEAL_BLANK,
    }
    if true_cluster is not None:
        metadata["fdsim_true_cluster"] = json.dumps([int(c) for c in true_cluster])
    rounds = iter(rounds)
    first = next(rounds, None)
    if first is not None and first.clients > ALL_LISTED_UP_TO:
        metadata["fdsim_clients"] = str(first.clients)
    schema = SCHEMA.with_metadata(metadata)
    with ParquetStream(
        Path(path), schema, to_table, rows_per_group=rows_per_group, resumable=False
    ) as stream:
        for trace_round in () if first is None else itertools.chain([first], rounds):
            # Rounds wait as arrays over all clients, whatever is written of them.
            stream.append(trace_round, rows=trace_round.clients)
            on_round(trace_round)
    return open_trace(path)
