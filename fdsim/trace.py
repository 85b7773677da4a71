"""The seam between devices and learning: who took part in which round, and why not.

A trace is a table with one row per (round, client). In memory it travels as one `TraceRound` per round
(arrays over the clients); on disk it is one Parquet file. Devices write it, learning reads it, and neither
knows the other.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fdsim.errors import TraceError

SCHEMA_VERSION = 1
#: Code of a cause, phase or network that does not apply.
NONE = -1


class Outcome(IntEnum):
    """What became of a client in a round."""

    completed = 0
    dropped = 1
    not_selected = 2


class Cause(IntEnum):
    """Why a client dropped out."""

    offline = 0
    battery_low = 1
    battery_empty = 2
    in_use = 3
    unplugged = 4
    metered = 5
    link_lost = 6
    deadline = 7
    outage = 8
    crashed = 9
    scripted = 10
    abandoned = 11


class Phase(IntEnum):
    """How far into its local round a client had come."""

    check_in = 0
    download = 1
    train = 2
    upload = 3


class Network(IntEnum):
    """The link a client was on when its round began."""

    none = 0
    wifi = 1
    cellular = 2


_ENUMS: dict[str, type[IntEnum]] = {"outcome": Outcome, "cause": Cause, "phase": Phase, "network": Network}
_WORDS = pa.dictionary(pa.int8(), pa.string())

#: trace.parquet, column by column.
SCHEMA = pa.schema(
    [
        ("round", pa.int32()),
        ("client", pa.int32()),
        ("outcome", _WORDS),
        ("cause", _WORDS),
        ("phase", _WORDS),
        ("progress", pa.float32()),
        ("start_s", pa.float64()),
        ("end_s", pa.float64()),
        ("download_s", pa.float32()),
        ("train_s", pa.float32()),
        ("upload_s", pa.float32()),
        ("soc_start", pa.float32()),
        ("soc_end", pa.float32()),
        ("energy_j", pa.float32()),
        ("bytes_down", pa.int64()),
        ("bytes_up", pa.int64()),
        ("network", _WORDS),
        ("round_start_s", pa.float64()),
        ("round_end_s", pa.float64()),
    ]
)


@dataclass(frozen=True)
class TraceRound:
    """One round of a trace: what became of each of the K clients. Arrays are [K], codes are of the enums
    above.

    `progress` is the share of the local training work done, 0..1. Times are simulated seconds since the
    start of the simulation; NaN where a phase was not reached. A client that was not selected has NaN times
    and no cause.
    """

    round: int
    round_start_s: float
    round_end_s: float
    outcome: np.ndarray
    cause: np.ndarray
    phase: np.ndarray
    progress: np.ndarray
    start_s: np.ndarray
    end_s: np.ndarray
    download_s: np.ndarray
    train_s: np.ndarray
    upload_s: np.ndarray
    soc_start: np.ndarray
    soc_end: np.ndarray
    energy_j: np.ndarray
    bytes_down: np.ndarray
    bytes_up: np.ndarray
    network: np.ndarray

    @property
    def clients(self) -> int:
        """The number of clients K."""
        return len(self.outcome)

    @property
    def selected(self) -> np.ndarray:
        """The clients that were asked to take part, ascending."""
        return np.flatnonzero(self.outcome != Outcome.not_selected)

    @property
    def completed(self) -> np.ndarray:
        """The clients whose update arrived, ascending."""
        return np.flatnonzero(self.outcome == Outcome.completed)

    @property
    def dropped(self) -> np.ndarray:
        """The clients that were asked and whose update did not arrive, ascending."""
        return np.flatnonzero(self.outcome == Outcome.dropped)


_NUMPY_TYPES: dict[str, Any] = {
    field.name: np.int8 if pa.types.is_dictionary(field.type) else field.type.to_pandas_dtype()
    for field in SCHEMA
}
_CLIENT_COLUMNS = tuple(f.name for f in fields(TraceRound) if not f.name.startswith("round"))


def blank_round(round_index: int, clients: int, start_s: float, end_s: float) -> TraceRound:
    """Makes a round in which nobody was selected; fill its arrays in place while building it."""
    blanks: dict[str, np.ndarray] = {}
    for name in _CLIENT_COLUMNS:
        kind = _NUMPY_TYPES[name]
        fill: float = (
            NONE if name in _ENUMS else (np.nan if name.endswith("_s") or name.startswith("soc") else 0)
        )
        blanks[name] = np.full(clients, fill, dtype=kind)
    blanks["outcome"][:] = Outcome.not_selected
    return TraceRound(round=round_index, round_start_s=start_s, round_end_s=end_s, **blanks)


def plain_round(
    round_index: int, active: np.ndarray, interval_s: float, cause: Cause = Cause.scripted
) -> TraceRound:
    """Makes a round from nothing but a mask [K] of who was active, for sources that know no devices."""
    made = blank_round(round_index, len(active), round_index * interval_s, (round_index + 1) * interval_s)
    made.outcome[:] = np.where(active, Outcome.completed, Outcome.dropped)
    made.cause[~active] = cause
    made.phase[:] = np.where(active, Phase.upload, Phase.check_in)
    made.progress[active] = 1.0
    made.start_s[:] = made.round_start_s
    made.end_s[:] = np.where(active, made.round_end_s, made.round_start_s)
    return made


def to_table(rounds: Iterable[TraceRound]) -> pa.Table:
    """Turns rounds into rows of `SCHEMA`."""
    rounds = list(rounds)
    columns: list[pa.Array] = []
    for field in SCHEMA:
        if field.name == "client":
            parts = [np.arange(r.clients, dtype=np.int32) for r in rounds]
        elif field.name.startswith("round"):
            parts = [
                np.full(r.clients, getattr(r, field.name), dtype=_NUMPY_TYPES[field.name]) for r in rounds
            ]
        else:
            parts = [np.asarray(getattr(r, field.name), dtype=_NUMPY_TYPES[field.name]) for r in rounds]
        values = np.concatenate(parts) if parts else np.empty(0, dtype=_NUMPY_TYPES[field.name])
        if field.name in _ENUMS:
            words = pa.array([member.name for member in _ENUMS[field.name]])
            codes = pa.array(values, mask=values < 0)
            columns.append(pa.DictionaryArray.from_arrays(codes, words))
        else:
            columns.append(pa.array(values, type=field.type))
    return pa.Table.from_arrays(columns, schema=SCHEMA)


class TraceWriter:
    """Writes rounds as they come to a Parquet file that appears under its name only when complete.

    `made_by` is the content hash of what made the trace; `true_cluster` [K] is stored when known. Memory
    stays at `rows_per_group` rows whatever the length of the trace.
    """

    def __init__(
        self,
        path: Path,
        *,
        made_by: str = "",
        true_cluster: np.ndarray | None = None,
        rows_per_group: int = 100_000,
    ) -> None:
        self.path = Path(path)
        self._temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        metadata = {"fdsim_schema_version": str(SCHEMA_VERSION), "fdsim_made_by": made_by}
        if true_cluster is not None:
            metadata["fdsim_true_cluster"] = json.dumps([int(c) for c in true_cluster])
        self._schema = SCHEMA.with_metadata(metadata)
        self._rows_per_group = rows_per_group
        self._waiting: list[TraceRound] = []
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> TraceWriter:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._writer = pq.ParquetWriter(self._temporary, self._schema, compression="zstd")
        return self

    def append(self, trace_round: TraceRound) -> None:
        """Takes the next round."""
        self._waiting.append(trace_round)
        if sum(r.clients for r in self._waiting) >= self._rows_per_group:
            self._flush()

    def _flush(self) -> None:
        if self._waiting and self._writer is not None:
            table = to_table(self._waiting).replace_schema_metadata(self._schema.metadata)
            self._writer.write_table(table, row_group_size=len(table))
            self._waiting = []

    def __exit__(self, kind: type[BaseException] | None, value: object, traceback: object) -> None:
        try:
            if kind is None:
                self._flush()
            if self._writer is not None:
                self._writer.close()
            if kind is None:
                with open(self._temporary, "rb") as file:
                    os.fsync(file.fileno())
                self._temporary.replace(self.path)
        finally:
            self._temporary.unlink(missing_ok=True)


@dataclass(frozen=True)
class Trace:
    """A trace file, opened: its size and metadata are known, its rounds are read as they are asked for."""

    path: Path
    clients: int
    rounds: int
    made_by: str
    true_cluster: np.ndarray | None

    def __iter__(self) -> Iterator[TraceRound]:
        """Yields the rounds in order, holding one row group at a time."""
        file = pq.ParquetFile(self.path)
        rest: pa.Table | None = None
        for group in range(file.num_row_groups):
            table = file.read_row_group(group)
            rest = table if rest is None else pa.concat_tables([rest, table])
            whole = len(rest) // self.clients
            yield from _rounds_of(rest.slice(0, whole * self.clients), self.clients, self.path)
            rest = rest.slice(whole * self.clients)
        if rest is not None and len(rest):
            raise TraceError(str(self.path), "the last round does not have one row per client")

    @property
    def content_hash(self) -> str:
        """A hash of the file's bytes: equal hashes mean equal traces."""
        digest = hashlib.blake2b(digest_size=16)
        with open(self.path, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
        return digest.hexdigest()


def _codes(column: pa.ChunkedArray, enum: type[IntEnum], path: Path) -> np.ndarray:
    column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], type=_WORDS)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    words = column.dictionary.to_pylist()
    unknown = [w for w in words if w is not None and w not in enum.__members__]
    if unknown:
        raise TraceError(
            str(path),
            f"unknown {enum.__name__.lower()} '{unknown[0]}'",
            f"one of: {', '.join(enum.__members__)}",
        )
    mapping = np.array([enum[w] if w is not None else NONE for w in words] + [NONE], dtype=np.int8)
    return np.asarray(mapping[column.indices.fill_null(len(words)).to_numpy(zero_copy_only=False)])


def _rounds_of(table: pa.Table, clients: int, path: Path) -> Iterator[TraceRound]:
    if not len(table):
        return
    arrays = {
        f.name: _codes(table[f.name], _ENUMS[f.name], path) if f.name in _ENUMS else table[f.name].to_numpy()
        for f in SCHEMA
    }
    expected = np.tile(np.arange(clients), len(table) // clients)
    if not np.array_equal(arrays["client"], expected):
        raise TraceError(
            str(path),
            "a round does not have exactly one row per client, clients ascending",
            "sort the rows by round, then client, and give every client one row in every round",
        )
    for start in range(0, len(table), clients):
        part = slice(start, start + clients)
        same_round = arrays["round"][part]
        if same_round[0] != same_round[-1]:
            raise TraceError(str(path), f"round {same_round[0]} does not have exactly one row per client")
        yield TraceRound(
            round=int(same_round[0]),
            round_start_s=float(arrays["round_start_s"][start]),
            round_end_s=float(arrays["round_end_s"][start]),
            **{name: arrays[name][part] for name in _CLIENT_COLUMNS},
        )


def open_trace(path: Path | str) -> Trace:
    """Opens a trace.parquet, checking that it is one and that this fdsim can read it."""
    path = Path(path)
    if not path.is_file():
        raise TraceError(
            str(path), "there is no such file", "`fdsim trace make SCENARIO --out FILE` makes one"
        )
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise TraceError(str(path), f"not a readable Parquet file ({error})") from None
    metadata = {k.decode(): v.decode() for k, v in (file.schema_arrow.metadata or {}).items()}
    version = int(metadata.get("fdsim_schema_version", 0))
    if version > SCHEMA_VERSION:
        raise TraceError(
            str(path), f"written by a newer fdsim (schema {version})", "upgrade fdsim to read it"
        )
    missing = [name for name in SCHEMA.names if name not in file.schema_arrow.names]
    if missing:
        raise TraceError(str(path), f"not a trace: column '{missing[0]}' is missing")
    rows = file.metadata.num_rows
    if not rows:
        raise TraceError(str(path), "the trace has no rows")
    first = file.read_row_group(0, columns=["round", "client"])
    clients = _clients_in_first_round(first, file, path)
    if rows % clients:
        raise TraceError(str(path), f"{rows} rows are not a whole number of rounds of {clients} clients")
    clusters = metadata.get("fdsim_true_cluster")
    return Trace(
        path=path,
        clients=clients,
        rounds=rows // clients,
        made_by=metadata.get("fdsim_made_by", ""),
        true_cluster=np.array(json.loads(clusters)) if clusters else None,
    )


def _clients_in_first_round(first: pa.Table, file: pq.ParquetFile, path: Path) -> int:
    rounds = first["round"].to_numpy()
    changes = np.flatnonzero(rounds != rounds[0])
    if len(changes):
        return int(changes[0])
    if file.num_row_groups == 1:
        return len(rounds)
    whole = file.read(columns=["round"])["round"].to_numpy()
    changes = np.flatnonzero(whole != whole[0])
    return int(changes[0]) if len(changes) else len(whole)


def write_trace(path: Path | str, rounds: Iterable[TraceRound], **metadata: Any) -> Trace:
    """Writes all rounds and opens the result; `metadata` as for `TraceWriter`."""
    with TraceWriter(Path(path), **metadata) as writer:
        for trace_round in rounds:
            writer.append(trace_round)
    return open_trace(path)
