"""The tables of a run, from Parquet to pandas: parts put together, older versions conformed, damage refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fdsim.errors import RunFolderError, TraceError
from fdsim.files import file_hash
from fdsim.telemetry.manifest import Manifest
from fdsim.telemetry.parts import Part, part_paths
from fdsim.telemetry.schema import SCHEMA_VERSION, TABLES, WORDS, Column, arrow_schema
from fdsim.telemetry.strategy_log import partition
from fdsim.telemetry.upgrade import conformed, upgraded, version_of

if TYPE_CHECKING:
    import pandas as pd

#: The first and the last round to read; None is open.
Rounds = tuple[int | None, int | None]

_T = TypeVar("_T")
_FILE_REMEDY = {
    "trace": "continue the run with --resume",
    "events": "set `events = true` under [telemetry] and run again",
}


def read_parts(
    run: Path, name: str, label: str, columns: Sequence[str] | None, rounds: Rounds | None
) -> pa.Table:
    """Read a strategy's part of a table."""
    wanted, where = _wanted(TABLES[name], columns, run), _where(rounds)

    def read(paths: list[Path]) -> pa.Table:
        table, rows = _concatenated(name, paths, wanted, where)
        _refuse_gaps(run, name, label, rows)
        return table

    return _until_stable(run / name / partition(label), read)


def count_rows(run: Path, name: str, label: str) -> int:
    """Return how many rows of a table a strategy has on disk."""
    return _until_stable(run / name / partition(label), lambda paths: sum(Part(path).rows for path in paths))


def _until_stable(folder: Path, read: Callable[[list[Path]], _T]) -> _T:
    """Read the parts in a folder, again if they were merged between listing and opening them."""
    while True:
        paths = part_paths(folder)
        try:
            return read(paths)
        except RunFolderError:
            if part_paths(folder) == paths:
                raise


def _concatenated(
    name: str, paths: Sequence[Path], wanted: list[str], where: pc.Expression | None
) -> tuple[pa.Table, int]:
    """Return the rows asked for in some parts, and how many rows the parts have in all."""
    tables, rows = [arrow_schema(TABLES[name]).empty_table().select(wanted)], 0
    for path in paths:
        part = Part(path)
        rows += part.rows
        if version_of(part.schema, path) == SCHEMA_VERSION:
            there = [column for column in wanted if column in part.schema.names]
            tables.append(conformed(name, part.read(there, where), wanted, path))
        else:
            table = upgraded(name, part.read(), path)
            tables.append((table if where is None else table.filter(where)).select(wanted))
    return pa.concat_tables(tables), rows


def _refuse_gaps(run: Path, name: str, label: str, rows: int) -> None:
    facts = Manifest.read(run).as_dict()["strategies"][label]
    expected = facts.get("rows", {}).get(name)
    if facts.get("status") == "complete" and expected is not None and rows != expected:
        raise RunFolderError(
            str(run / name / partition(label)),
            f"{rows} rows were found, {expected} were written: a part is missing",
            "restore it from a copy",
        )


def read_file(run: Path, name: str, columns: Sequence[str] | None, rounds: Rounds | None) -> pa.Table:
    """Read a table that is one file, the trace or the event log."""
    path = run / f"{name}.parquet"
    if not path.is_file():
        why = (
            "the fleet is still being simulated, or the file was removed"
            if name == "trace"
            else "no event log was written"
        )
        raise RunFolderError(str(path), f"there is no such file: {why}", _FILE_REMEDY[name])
    known = Manifest.read(run).as_dict().get(f"{name}_hash")
    if known is not None and file_hash(path) != known:
        raise RunFolderError(str(path), "the file is damaged: its bytes are not those that were written")
    try:
        schema = pq.read_schema(path)
        if name == "events":
            version_of(schema, path)
        filters = _where(rounds) if name == "trace" else None
        return pq.read_table(path, columns=list(columns) if columns is not None else None, filters=filters)
    except (pa.ArrowInvalid, OSError) as error:
        raise TraceError(str(path), f"not a readable Parquet file ({error})") from None


def to_pandas(table: pa.Table, name: str) -> pd.DataFrame:
    """Turn rows into pandas; integers that may be null become Int32, so that a client is never 3.0."""
    frame: pd.DataFrame = table.to_pandas()
    for column in TABLES.get(name, ()):
        if column.name not in table.column_names:
            continue
        # Files of older versions have nulls in columns that are never null today.
        if column.nullable or (pa.types.is_integer(column.type) and table[column.name].null_count):
            frame[column.name] = _nullable(table[column.name])
        if column.name in WORDS:
            # The same categories in every run, whichever of them occur.
            words = [member.name for member in WORDS[column.name]]
            frame[column.name] = frame[column.name].cat.set_categories(words)
    return frame


def with_strategy(found: list[tuple[str, pa.Table]], labels: list[str], name: str) -> pd.DataFrame:
    """Put the rows of several strategies together, with a first column that says whose they are."""
    import numpy as np
    import pandas as pd

    frame = to_pandas(pa.concat_tables([table for _, table in found]).unify_dictionaries(), name)
    codes = np.concatenate(
        [np.full(len(table), labels.index(label), dtype=np.int16) for label, table in found]
    )
    strategy = pd.Series(pd.Categorical.from_codes(codes, categories=pd.Index(labels)))
    frame.insert(0, "strategy", strategy)
    return frame


def _wanted(known: Sequence[Column], columns: Sequence[str] | None, path: Path) -> list[str]:
    names = [column.name for column in known]
    for column in columns or ():
        if column not in names and column != "strategy":
            raise RunFolderError(str(path), f"no column called '{column}'", "`fdsim list columns` shows them")
    return names if columns is None else [column for column in columns if column != "strategy"]


def _where(rounds: Rounds | None) -> pc.Expression | None:
    if rounds is None or rounds == (None, None):
        return None
    first, last = rounds
    chosen = pc.scalar(True)
    if first is not None:
        chosen = chosen & (pc.field("round") >= first)
    if last is not None:
        chosen = chosen & (pc.field("round") <= last)
    return chosen


def _nullable(values: pa.ChunkedArray) -> pd.Series[Any]:
    import pandas as pd

    kinds = {pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype()}
    found: pd.Series[Any] = values.to_pandas(types_mapper=kinds.get)
    return found
