"""Arrow tables from the records that strategies log."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from fdsim.telemetry.schema import (
    CLIENT_COLUMNS,
    ROUND_COLUMNS,
    SIMILARITY_COLUMNS,
    WORDS,
    ClientRows,
    Column,
    RoundRow,
    SimilaritySnapshot,
    arrow_schema,
)


def rounds_table(rows: Sequence[RoundRow]) -> pa.Table:
    """Return records of the rounds table as rows."""
    columns = [pa.array([getattr(row, c.name) for row in rows], type=c.type) for c in ROUND_COLUMNS]
    return pa.Table.from_arrays(columns, schema=arrow_schema(ROUND_COLUMNS))


def clients_table(rounds: Sequence[ClientRows]) -> pa.Table:
    """Return rounds of the clients table as one row per (round, client)."""
    columns = []
    for column in CLIENT_COLUMNS:
        if column.name == "client":
            parts = [r.client.astype(np.int32) for r in rounds]
        elif column.name == "round":
            parts = [np.full(len(r.outcome), r.round, dtype=np.int32) for r in rounds]
        else:
            parts = [np.asarray(getattr(r, column.name)) for r in rounds]
        columns.append(_column(column, parts))
    return pa.Table.from_arrays(columns, schema=arrow_schema(CLIENT_COLUMNS))


def similarity_table(snapshots: Sequence[SimilaritySnapshot]) -> pa.Table:
    """Return snapshots as one row per (round, pair)."""
    columns = []
    for column in SIMILARITY_COLUMNS:
        if column.name == "round":
            parts = [np.full(len(s.first), s.round, dtype=np.int32) for s in snapshots]
        else:
            parts = [np.asarray(getattr(s, column.name)) for s in snapshots]
        columns.append(_column(column, parts))
    return pa.Table.from_arrays(columns, schema=arrow_schema(SIMILARITY_COLUMNS))


def _column(column: Column, parts: list[np.ndarray]) -> pa.Array:
    """Join the arrays of several rounds; codes become words, -1 and NaN become null."""
    if column.name in WORDS:
        codes = np.concatenate(parts).astype(np.int8) if parts else np.empty(0, np.int8)
        words = pa.array([member.name for member in WORDS[column.name]])
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), words)
    values = np.concatenate(parts) if parts else np.empty(0, column.type.to_pandas_dtype())
    if pa.types.is_integer(column.type):
        return pa.array(values, mask=values < 0).cast(column.type)
    if pa.types.is_floating(column.type):
        values = values.astype(column.type.to_pandas_dtype())
        return pa.array(values, mask=np.isnan(values))
    return pa.array(values, type=column.type)
