"""The rows of a trace: the Arrow schema of its columns, rounds as such rows, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from pathlib import Path

import numpy as np
import pyarrow as pa

from fdsim.errors import TraceError
from fdsim.trace.round import CLIENT_COLUMNS, COLUMNS, ENUMS, NONE, TraceRound, blank_round

WORDS = pa.dictionary(pa.int8(), pa.string())

#: trace.parquet.
SCHEMA = pa.schema(
    [(name, WORDS if name in ENUMS else pa.from_numpy_dtype(kind)) for name, kind in COLUMNS.items()]
)


def to_table(rounds: Iterable[TraceRound]) -> pa.Table:
    """Turn rounds into rows of `SCHEMA`."""
    rounds = list(rounds)
    listed = [r.listed for r in rounds]
    columns: list[pa.Array] = []
    for field in SCHEMA:
        if field.name == "client":
            parts = [clients.astype(np.int32) for clients in listed]
        elif field.name.startswith("round"):
            parts = [
                np.full(len(clients), getattr(r, field.name), dtype=COLUMNS[field.name])
                for r, clients in zip(rounds, listed, strict=True)
            ]
        else:
            parts = [
                np.asarray(getattr(r, field.name)[clients], dtype=COLUMNS[field.name])
                for r, clients in zip(rounds, listed, strict=True)
            ]
        values = np.concatenate(parts) if parts else np.empty(0, dtype=COLUMNS[field.name])
        if field.name in ENUMS:
            words = pa.array([member.name for member in ENUMS[field.name]])
            codes = pa.array(values, mask=values < 0)
            columns.append(pa.DictionaryArray.from_arrays(codes, words))
        else:
            columns.append(pa.array(values, type=field.type))
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def typed(table: pa.Table) -> pa.Table:
    """Return the columns with the types of a trace; a type or a null that cannot be is a ValueError."""
    columns = []
    for field in SCHEMA:
        column = table[field.name]
        if field.name not in ENUMS:
            column = column if column.type == field.type else column.cast(field.type)
            if column.null_count:
                raise ValueError(f"column '{field.name}' has empty cells")
        columns.append(column)
    return pa.table(columns, names=SCHEMA.names)


def rounds_of(table: pa.Table, clients: int, path: Path) -> Iterator[TraceRound]:
    """Yield rounds of which every client has a row; `path` is named in errors."""
    if not len(table):
        return
    arrays = _arrays(table, path)
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
            **{name: arrays[name][part] for name in CLIENT_COLUMNS},
        )


def listed_rounds_of(table: pa.Table, clients: int, path: Path) -> Iterator[TraceRound]:
    """Yield rounds of which only some clients have a row."""
    if not len(table):
        return
    arrays = _arrays(table, path)
    starts = np.flatnonzero(np.diff(arrays["round"], prepend=-1))
    for start, stop in zip(starts, [*starts[1:], len(table)], strict=True):
        who = arrays["client"][start:stop]
        if who[0] < 0 or who[-1] >= clients or (np.diff(who) <= 0).any():
            raise TraceError(
                f"{path}, round {arrays['round'][start]}",
                f"its clients do not ascend within 0..{clients - 1}",
                "sort the rows by round, then client",
            )
        made = blank_round(
            int(arrays["round"][start]),
            clients,
            float(arrays["round_start_s"][start]),
            float(arrays["round_end_s"][start]),
        )
        for name in CLIENT_COLUMNS:
            getattr(made, name)[who] = arrays[name][start:stop]
        yield made


def _arrays(table: pa.Table, path: Path) -> dict[str, np.ndarray]:
    return {
        f.name: _codes(table[f.name], ENUMS[f.name], path) if f.name in ENUMS else table[f.name].to_numpy()
        for f in SCHEMA
    }


def _codes(column: pa.ChunkedArray, enum: type[IntEnum], path: Path) -> np.ndarray:
    column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], type=WORDS)
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
