"""Tables that grow on disk: each row once, in order, in files that open, whatever the flushes."""

from __future__ import annotations

import sys
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
        table.append(rows(at, count), next_round=at + count)
        at += count
    return table


def rounds_in(folder: Path) -> list[list[int]]:
    return [Part(path).read()["round"].to_pylist() for path in part_paths(folder / "t")]


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART_ROWS", 10)


@settings(max_examples=20, deadline=None)
@given(flushes=st.lists(st.integers(0, 25), min_size=1, max_size=9))
def test_rows_stay_whole_and_in_order_however_they_are_flushed(
    tmp_path_factory: pytest.TempPathFactory, flushes: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("grown")
    table = grown(folder, flushes)
    assert [len(part) for part in rounds_in(folder)] == flushes
    table.merge()
    assert [r for part in rounds_in(folder) for r in part] == list(range(sum(flushes)))
    assert table.rows == sum(flushes)


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux can exchange two folders in one step"
)
def test_many_small_parts_are_merged_at_the_end(tmp_path: Path) -> None:
    table = grown(tmp_path, [3] * 8)
    table.merge()
    assert [len(part) for part in rounds_in(tmp_path)] == [10, 10, 4]
    assert not list((tmp_path / "tmp").iterdir())


def test_where_folders_cannot_be_exchanged_the_parts_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "exchange", lambda *_: False)
    grown(tmp_path, [3] * 8).merge()
    assert [len(part) for part in rounds_in(tmp_path)] == [3] * 8
    assert not list((tmp_path / "tmp").iterdir())


def test_a_part_once_written_never_changes(tmp_path: Path) -> None:
    table = grown(tmp_path, [5, 5])
    before = [path.stat().st_ino for path in part_paths(tmp_path / "t")]
    table.append(rows(10, 7), next_round=17)
    GrowingTable(tmp_path / "t", SCHEMA, tmp_path / "tmp").open(17)
    GrowingTable(tmp_path / "t", SCHEMA, tmp_path / "tmp").open(10)
    assert [path.stat().st_ino for path in part_paths(tmp_path / "t")] == before


@pytest.mark.parametrize("keep", [0, 4, 10, 11, 25, 34])
@pytest.mark.parametrize("flushes", [[34], [10, 1, 14, 9], [0, 4, 6, 24], [1] * 34])
def test_opening_drops_the_rounds_from_the_checkpoint_on(
    tmp_path: Path, flushes: list[int], keep: int
) -> None:
    grown(tmp_path, flushes).merge()
    table = GrowingTable(tmp_path / "t", SCHEMA, tmp_path / "tmp")
    table.open(keep)
    assert table.rows == keep
    assert [r for part in rounds_in(tmp_path) for r in part] == list(range(keep))
    table.append(rows(keep, 7), next_round=keep + 7)
    assert [r for part in rounds_in(tmp_path) for r in part] == list(range(keep + 7))


def test_rows_appended_again_after_an_interrupt_are_not_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt may come when the file is in place and the memory of it is not."""
    table = grown(tmp_path, [4])
    monkeypatch.setattr(parts, "_End", _interrupt)
    with pytest.raises(KeyboardInterrupt):
        table.append(rows(4, 3), next_round=7)
    monkeypatch.undo()
    table.append(rows(4, 3), next_round=7)
    assert pq.read_table(tmp_path / "t")["round"].to_pylist() == list(range(7))


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    grown(tmp_path, [3, 3, 3])
    (tmp_path / "t" / "part-000001.parquet").unlink()
    with pytest.raises(RunFolderError, match=r"part-000001\.parquet: the part is missing"):
        part_paths(tmp_path / "t")


def test_no_unfinished_file_lies_among_the_parts(tmp_path: Path) -> None:
    grown(tmp_path, [34])
    assert {path.suffix for path in (tmp_path / "t").iterdir()} == {".parquet"}
    assert not list((tmp_path / "tmp").iterdir())
