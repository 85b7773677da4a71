"""A table on disk that grows: a folder of part files of which only the last one changes.

New rows go into the last part, which is written anew as a whole and renamed over the old one, until it is
full; then the next part begins. So at every moment the folder holds each row once, in order, in files that
open. Merging many small files at the end instead would need a moment in which rows are there twice or not at
all. The boundaries between parts depend on the rows alone, not on when they were flushed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fdsim.errors import RunFolderError
from fdsim.telemetry.disk import storage_errors, sync_folder, write_whole
from fdsim.telemetry.seal import check_seal, sealed_parquet

#: A part holds this many rows, or this many times the rows of a round, whichever is more.
PART_ROWS, PART_ROUNDS = 32_768, 8


def part_path(folder: Path, index: int) -> Path:
    """Answers with the name of a part."""
    return folder / f"part-{index:06d}.parquet"


def part_paths(folder: Path) -> list[Path]:
    """Answers with the parts of a table, in order; a gap in the numbers is an error."""
    found = sorted(folder.glob("part-*.parquet"))
    for index, path in enumerate(found):
        if path != part_path(folder, index):
            raise RunFolderError(
                str(part_path(folder, index)),
                "the part is missing",
                "restore it from a copy, or run again with --force",
            )
    return found


class Part:
    """One part whose bytes are known to be those that were written."""

    def __init__(self, path: Path) -> None:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise RunFolderError(str(path), f"cannot be read ({error.strerror})") from None
        check_seal(content, path)
        self.path, self._content = path, pa.BufferReader(content)
        self.schema: pa.Schema = pq.read_schema(self._content)
        self.rows = int(pq.read_metadata(self._content).num_rows)

    def read(self, columns: list[str] | None = None, where: pc.Expression | None = None) -> pa.Table:
        """Reads some columns of the rows for which `where` holds, leaving out row groups that have none."""
        return pq.read_table(self._content, columns=columns, filters=where)


@dataclass(frozen=True)
class _Tail:
    """The last part: its number, its rows, the rows in the parts before it, and the round that comes next."""

    index: int
    rows: pa.Table
    rows_before: int
    next_round: int


class GrowingTable:
    """The writer of one table of one strategy."""

    def __init__(self, folder: Path, schema: pa.Schema, temporary: Path) -> None:
        self.folder, self.schema, self._temporary = folder, schema, temporary
        self._tail = _Tail(0, schema.empty_table(), 0, 0)

    @property
    def rows(self) -> int:
        """How many rows the table has on disk."""
        return self._tail.rows_before + len(self._tail.rows)

    @property
    def next_round(self) -> int:
        """The first round that is not on disk yet."""
        return self._tail.next_round

    def open(self, next_round: int) -> None:
        """Takes up the rows of the rounds before `next_round` and drops all later ones from the disk."""
        parts, table = part_paths(self.folder), self.schema.empty_table()
        kept = table
        while parts:
            table = Part(parts[-1]).read()
            kept = table.filter(pc.less(table["round"], next_round))
            if len(kept) or len(parts) == 1:
                break
            # From the end backwards, so that a kill in between leaves no gap.
            with storage_errors(parts[-1]):
                parts.pop().unlink()
                sync_folder(self.folder)
        kept = kept.cast(self.schema).replace_schema_metadata(self.schema.metadata)
        rows_before = sum(_row_count(path) for path in parts[:-1])
        tail = _Tail(max(len(parts) - 1, 0), kept, rows_before, next_round)
        if len(kept) < len(table):
            self._write(tail.index, tail.rows)
        self._tail = tail

    def create(self) -> None:
        """Puts the table on disk without rows, so that it can be read from the start."""
        self._write(0, self.schema.empty_table())

    def append(self, table: pa.Table, *, next_round: int, rows_per_round: int) -> None:
        """Puts the rows of the rounds before `next_round` on disk; they are readable when this returns."""
        room = max(PART_ROWS, PART_ROUNDS * rows_per_round)
        index, before = self._tail.index, self._tail.rows_before
        rows = pa.concat_tables([self._tail.rows, table.replace_schema_metadata(self.schema.metadata)])
        while len(rows) > room:
            self._write(index, rows.slice(0, room))
            index, before, rows = index + 1, before + room, rows.slice(room)
        self._write(index, rows)
        # One assignment: an interrupt leaves the old state or the new one, and rows may be written twice.
        self._tail = _Tail(index, rows.combine_chunks(), before, next_round)

    def _write(self, index: int, rows: pa.Table) -> None:
        with storage_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(part_path(self.folder, index), sealed_parquet(rows), temporary=self._temporary)


def _row_count(path: Path) -> int:
    try:
        return int(pq.read_metadata(path).num_rows)
    except (pa.ArrowInvalid, OSError) as error:
        raise RunFolderError(str(path), f"not a readable Parquet file ({error})") from None
