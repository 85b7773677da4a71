"""The fleet's event log, streamed to one file that appears when it is complete."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from fdsim.files import ParquetStream, file_hash
from fdsim.telemetry.schema import EVENT_COLUMNS, arrow_schema, file_schema

_GROUP_ROWS = 65_536
_SCHEMA = arrow_schema(EVENT_COLUMNS)

#: Time, client, what happened, and the number that belongs to it.
Event = tuple[float, int | None, str, float | None]


class EventsWriter:
    """Takes events in order of time; `on_complete` is called with the hash of the finished file."""

    def __init__(
        self, path: Path, *, scenario_hash: str, temporary: Path, on_complete: Callable[[str], None]
    ) -> None:
        self._on_complete = on_complete
        schema = file_schema("events", scenario_hash=scenario_hash)
        self._stream: ParquetStream[Event] = ParquetStream(
            path, schema, _to_table, rows_per_group=_GROUP_ROWS, temporary=temporary
        )

    def __enter__(self) -> EventsWriter:
        self._stream.__enter__()
        return self

    def append(self, t_s: float, client: int | None, what: str, value: float | None = None) -> None:
        """Take one event; `client` is None for events of the server or of the whole fleet."""
        self._stream.append((t_s, client, what, value))

    def __exit__(self, kind: type[BaseException] | None, value: object, traceback: object) -> None:
        self._stream.__exit__(kind, value, traceback)
        if kind is None:
            self._on_complete(file_hash(self._stream.path))


def _to_table(events: list[Event]) -> pa.Table:
    columns = zip(*events, strict=True)
    return pa.Table.from_arrays(
        [pa.array(values, type=f.type) for f, values in zip(_SCHEMA, columns, strict=True)], schema=_SCHEMA
    )
