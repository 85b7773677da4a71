"""A table on disk that grows: a folder of part files, each written once and never changed.

Readers list a folder first and open the files later, some of them (polars) twice; so a file that they may know of must
neither change nor vanish. A running run has many small parts. When it ends they are merged in a second folder, which
then replaces the first in a single step of the file system, so that no row is ever duplicated or missing, even when
the process is killed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fdsim.errors import RunFolderError
from fdsim.files import exchange, hash_of, seal_of, storage_errors, sync_folder, write_whole
from fdsim.telemetry.checksum import GROUP_ROWS, checksummed_parquet, seal_in, verify_checksum

#: Rows of a merged part.
PART_ROWS = 262_144
#: Up to this many parts are not worth merging.
FEW_PARTS = 4


def part_path(folder: Path, index: int) -> Path:
    """Return the path of a part."""
    return folder / f"part-{index:06d}.parquet"


def part_paths(folder: Path) -> list[Path]:
    """Return the parts of a table, in order; a gap in the numbers is an error."""
    found = sorted(folder.glob("part-*.parquet"))
    for index, path in enumerate(found):
        if path != part_path(folder, index):
            raise RunFolderError(
                str(part_path(folder, index)),
                "the part is missing",
                "restore it from a copy, or run again with --force",
            )
    return found


def digests(simulation: str, seals: Sequence[str]) -> list[str]:
    """Return what a table is before its first part and after each one: a hash of the simulation and of all seals so far."""
    found = [hash_of(simulation)]
    for seal in seals:
        found.append(hash_of([found[-1], seal]))
    return found


def seals_of(folder: Path) -> list[str]:
    """Return the checksums that the parts of a table carry, in order; of each file only the end is read."""
    return [seal_of(path) or "none" for path in sorted(folder.glob("part-*.parquet"))]


class Part:
    """One part whose checksum was verified."""

    def __init__(self, path: Path) -> None:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise RunFolderError(str(path), f"cannot be read ({error.strerror})") from None
        verify_checksum(content, path)
        self.path, self._content = path, pa.BufferReader(content)
        try:
            self.schema: pa.Schema = pq.read_schema(self._content)
            self.rows = int(pq.read_metadata(self._content).num_rows)
        except (pa.ArrowException, OSError) as error:
            raise RunFolderError(str(path), f"not a readable Parquet file ({error})") from None

    def read(self, columns: list[str] | None = None, where: pc.Expression | None = None) -> pa.Table:
        """Read some columns of the rows for which `where` holds, skipping row groups that have none."""
        return pq.read_table(self._content, columns=columns, filters=where)


@dataclass(frozen=True)
class _End:
    """Where a table ends: the number of the next part, the rows so far, the round that comes next."""

    parts: int = 0
    rows: int = 0
    next_round: int = 0
    digest: str = ""
    """What the table is: see `digests`."""


class GrowingTable:
    """The writer of one table of one strategy."""

    def __init__(self, folder: Path, schema: pa.Schema, temporary: Path) -> None:
        self.folder, self.schema, self._temporary = folder, schema, temporary
        self._simulation, self._end = "", _End()

    @property
    def rows(self) -> int:
        """The number of rows on disk."""
        return self._end.rows

    @property
    def next_round(self) -> int:
        """The first round that is not on disk yet."""
        return self._end.next_round

    @property
    def digest(self) -> str:
        """A hash of the parts on disk as this writer wrote them, and of the simulation they come from."""
        return self._end.digest

    def open(self, next_round: int, simulation: str = "") -> None:
        """Continue after the rounds before `next_round`, removing all later rows from the disk."""
        self._simulation = simulation
        parts = part_paths(self.folder)
        for path in parts:
            Part(path)  # checks it: rows that are kept are rows that were written
        # From the end backwards, so that a kill in between leaves no gap.
        while parts and _first_round(parts[-1], above=next_round) >= next_round:
            with storage_errors(parts[-1]):
                parts.pop().unlink()
                sync_folder(self.folder)
        if parts:
            # A checkpoint ends a part; only merged parts go beyond one.
            last = Part(parts[-1]).read()
            kept = last.filter(pc.less(last["round"], next_round))
            if len(kept) < len(last):
                write_whole(parts[-1], checksummed_parquet(kept.cast(self.schema)), temporary=self._temporary)
        rows = sum(_row_count(path) for path in parts)
        self._end = _End(len(parts), rows, next_round, digests(simulation, seals_of(self.folder))[-1])

    def clear(self) -> None:
        """Remove all parts, whatever their state."""
        with storage_errors(self.folder):
            for path in sorted(self.folder.glob("part-*.parquet"), reverse=True):
                path.unlink()
        self._end = _End(digest=digests(self._simulation, [])[-1])

    def damage(self, rows: int | None) -> str | None:
        """Say what is wrong with the parts on disk, which hold `rows` rows if that is known."""
        try:
            found = sum(Part(path).rows for path in part_paths(self.folder))
        except RunFolderError as error:
            return str(error)
        if rows is not None and found != rows:
            return f"{self.folder}: {found} rows were found, {rows} were written"
        return None

    def append(self, table: pa.Table, *, next_round: int) -> None:
        """Put the rows of the rounds before `next_round` on disk; they are readable when this returns."""
        content = checksummed_parquet(table.cast(self.schema))
        write_whole(part_path(self.folder, self._end.parts), content, temporary=self._temporary)
        # One assignment: an interrupt leaves the old state or the new one, and the part may be written again.
        end = self._end
        digest = hash_of([end.digest, seal_in(content)])
        self._end = _End(end.parts + 1, end.rows + len(table), next_round, digest)

    @property
    def mergeable(self) -> bool:
        """Whether the parts are many and small."""
        parts = part_paths(self.folder)
        return len(parts) > FEW_PARTS and sum(map(_row_count, parts)) < GROUP_ROWS * len(parts)

    def merge(self) -> None:
        """Merge small parts, where the file system can swap two folders in one step."""
        if not self.mergeable:
            return
        parts = part_paths(self.folder)
        merged = self._temporary / f"merged.{self.folder.parent.name}.{self.folder.name}"
        for index, table in enumerate(_in_blocks(parts)):
            write_whole(
                part_path(merged, index),
                checksummed_parquet(table.cast(self.schema)),
                temporary=self._temporary,
            )
        with storage_errors(self.folder):
            exchange(merged, self.folder)
            shutil.rmtree(merged)


def _in_blocks(paths: list[Path]) -> Iterator[pa.Table]:
    """Yield the rows of many parts in tables of `PART_ROWS`."""
    waiting: list[pa.Table] = []
    for path in paths:
        waiting.append(Part(path).read())
        while sum(map(len, waiting)) >= PART_ROWS:
            rows = pa.concat_tables(waiting)
            yield rows.slice(0, PART_ROWS)
            waiting = [rows.slice(PART_ROWS)]
    yield pa.concat_tables(waiting)


def _first_round(path: Path, *, above: int) -> int:
    """Return the first round in a part; for an empty one, as a table's first part may be, a round below `above`."""
    rounds = Part(path).read(["round"])["round"]
    return int(rounds[0].as_py()) if len(rounds) else above - 1


def _row_count(path: Path) -> int:
    try:
        return int(pq.read_metadata(path).num_rows)
    except (pa.ArrowInvalid, OSError) as error:
        raise RunFolderError(str(path), f"not a readable Parquet file ({error})") from None
