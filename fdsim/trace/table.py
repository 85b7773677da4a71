"""The rows of a trace: the Arrow schema of its columns, and rounds as such rows."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from fdsim.trace.round import COLUMNS, ENUMS, TraceRound

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
