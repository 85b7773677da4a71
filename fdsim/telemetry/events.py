"""The fleet's event log, streamed to one file that appears when it is complete."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fdsim.files import file_hash, put_in_place, storage_errors
from fdsim.telemetry.schema import EVENT_COLUMNS, SCHEMA_VERSION, arrow_schema

_GROUP_ROWS = 65_536


class EventsWriter:
    """Takes events in order of time; memory stays at one row group. `on_complete` is told the file's hash."""

    def __init__(
        self, path: Path, *, scenario_hash: str, temporary: Path, on_complete: Callable[[str], None]
    ) -> None:
        self._on_complete = on_complete
        self.path, self._waiting_path = path, temporary / path.name
        self._schema = arrow_schema(EVENT_COLUMNS).with_metadata(
            {
                "fdsim_table": "events",
                "fdsim_schema_version": str(SCHEMA_VERSION),
                "fdsim_scenario_hash": scenario_hash,
            }
        )
        self._writer: pq.ParquetWriter | None = None
        self._rows: list[tuple[float, int | None, str, float | None]] = []

    def __enter__(self) -> EventsWriter:
        with storage_errors(self.path):
            self._waiting_path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._waiting_path, self._schema, compression="zstd")
        return self

    def append(self, t_s: float, client: int | None, what: str, value: float | None = None) -> None:
        """Take one event; `client` is None for what happens to the server or to all."""
        self._rows.append((t_s, client, what, value))
        if len(self._rows) >= _GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._writer is None or not self._rows:
            return
        columns = [
            pa.array(values, type=f.type)
            for f, values in zip(self._schema, zip(*self._rows, strict=True), strict=True)
        ]
        with storage_errors(self.path):
            self._writer.write_table(pa.Table.from_arrays(columns, schema=self._schema))
        self._rows = []

    def __exit__(self, kind: type[BaseException] | None, value: object, traceback: object) -> None:
        try:
            if kind is None:
                self._flush()
            with storage_errors(self.path):
                if self._writer is not None:
                    self._writer.close()
                if kind is None:
                    with open(self._waiting_path, "rb") as file:
                        os.fsync(file.fileno())
                    found = file_hash(self._waiting_path)
                    put_in_place(self._waiting_path, self.path)
                    self._on_complete(found)
        finally:
            self._waiting_path.unlink(missing_ok=True)
