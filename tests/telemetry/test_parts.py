"""Tables that grow on disk: each row once, in order, in files that open, whatever the flushes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdsim.errors import RunFolderError
from fdsim.telemetry import parts
from fdsim.telemetry.parts import GrowingTable, Part, part_paths

SCHEMA = pa.schema([("round", pa.int32()), ("value", pa.float64())])


def rows(first: int, count: int) -> pa.Table:
    numbers = np.arange(first, first + count, dtype=np.int32)
    return pa.table({"round": numbers, "value": numbers / 7.0})


def grown(folder: Path, flushes: list[int]) -> GrowingTable:
    table, at = GrowingTable(folder / "t", SCHEMA, folder / "tmp"), 0
    for count in flushes:
        table.append(rows(at, count), next_round=at + count, rows_per_round=1)
        at += count
    return table


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART_ROWS", 10)


@settings(max_examples=20, deadline=None)
@given(flushes=st.lists(st.integers(1, 25), min_size=1, max_size=6))
def test_rows_stay_whole_and_in_order_however_they_are_flushed(
    tmp_path_factory: pytest.TempPathFactory, flushes: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("grown")
    table = grown(folder, flushes)
    found = [Part(path).read()["round"].to_pylist() for path in part_paths(folder / "t")]
    total = sum(flushes)
    assert [r for part in found for r in part] == list(range(total))
    assert table.rows == total
    # Where a part ends depends on the rows alone.
    assert [len(part) for part in found[:-1]] == [10] * (len(found) - 1)


@pytest.mark.parametrize("keep", [0, 4, 10, 11, 25, 34])
def test_opening_drops_the_rounds_from_the_checkpoint_on(tmp_path: Path, keep: int) -> None:
    grown(tmp_path, [34])
    table = GrowingTable(tmp_path / "t", SCHEMA, tmp_path / "tmp")
    table.open(keep)
    assert table.rows == keep
    assert pq.read_table(tmp_path / "t")["round"].to_pylist() == list(range(keep))
    table.append(rows(keep, 7), next_round=keep + 7, rows_per_round=1)
    assert pq.read_table(tmp_path / "t")["round"].to_pylist() == list(range(keep + 7))


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    for name, flushes in (("a", [34]), ("b", [3, 9, 20, 2])):
        grown(tmp_path / name, flushes)
    assert [p.name for p in part_paths(tmp_path / "a" / "t")] == [
        p.name for p in part_paths(tmp_path / "b" / "t")
    ]
    for one, other in zip(part_paths(tmp_path / "a" / "t"), part_paths(tmp_path / "b" / "t"), strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_rows_appended_again_after_an_interrupt_are_not_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt may come when the file is in place and the memory of it is not."""
    table = grown(tmp_path, [4])
    monkeypatch.setattr(parts, "_Tail", _interrupt)
    with pytest.raises(KeyboardInterrupt):
        table.append(rows(4, 3), next_round=7, rows_per_round=1)
    monkeypatch.undo()
    table.append(rows(4, 3), next_round=7, rows_per_round=1)
    assert pq.read_table(tmp_path / "t")["round"].to_pylist() == list(range(7))


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    grown(tmp_path, [34])
    (tmp_path / "t" / "part-000001.parquet").unlink()
    with pytest.raises(RunFolderError, match=r"part-000001\.parquet: the part is missing"):
        part_paths(tmp_path / "t")


def test_no_unfinished_file_lies_among_the_parts(tmp_path: Path) -> None:
    grown(tmp_path, [34])
    assert {path.suffix for path in (tmp_path / "t").iterdir()} == {".parquet"}
    assert not list((tmp_path / "tmp").iterdir())
