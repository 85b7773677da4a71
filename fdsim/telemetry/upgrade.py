"""Files of older schema versions, read as if written with the current one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa

from fdsim.errors import RunFolderError
from fdsim.telemetry.schema import SCHEMA_VERSION, TABLES

#: One step from a version to the next: takes the table's name and rows, returns the rows as the next
#: version has them. Columns that are merely new need no step: by their `since`, older files have null there.
Step = Callable[[str, pa.Table], pa.Table]

#: version → the step that leads away from it; a version that only added columns has none.
STEPS: Mapping[int, Step] = {}


def version_of(schema: pa.Schema, path: Path) -> int:
    """Return a file's schema version, or raise an error when this fdsim cannot read it."""
    text = (schema.metadata or {}).get(b"fdsim_schema_version", b"").decode()
    if not text.isdigit():
        raise RunFolderError(str(path), "not a table of fdsim: its metadata has no schema version")
    if int(text) > SCHEMA_VERSION:
        raise RunFolderError(
            str(path), f"written by a newer fdsim (schema {text})", "upgrade fdsim to read it"
        )
    return int(text)


def upgraded(name: str, table: pa.Table, path: Path, steps: Mapping[int, Step] = STEPS) -> pa.Table:
    """Return the rows of a file in the current schema, whatever version wrote it."""
    version = version_of(table.schema, path)
    for step in range(version, SCHEMA_VERSION):
        if step in steps:
            table = steps[step](name, table)
    for column in TABLES[name]:
        if column.name not in table.column_names and column.since > version:
            table = table.append_column(column.name, pa.nulls(len(table), column.type))
    return conformed(name, table, [column.name for column in TABLES[name]], path)


def conformed(name: str, table: pa.Table, wanted: list[str], path: Path) -> pa.Table:
    """Return the wanted columns, typed as in the schema; a missing one is an error."""
    types = {column.name: column.type for column in TABLES[name]}
    columns = {}
    for column in wanted:
        if column not in table.column_names:
            raise RunFolderError(str(path), f"column '{column}' is missing", "restore the file from a copy")
        found = table[column]
        columns[column] = found if found.type == types[column] else found.cast(types[column])
    return pa.table(columns)
