"""The seam: a trace on disk is the trace in memory, complete or not there at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdsim.devices.config.fleet import DeviceGroup
from fdsim.devices.config.server import Server
from fdsim.devices.config.simulation import SimulationConfig
from fdsim.devices.engine.world import simulate
from fdsim.errors import StorageError, TraceError
from fdsim.trace import (
    SCHEMA,
    Cause,
    Outcome,
    Phase,
    TraceRound,
    blank_round,
    open_trace,
    plain_round,
    to_table,
    write_trace,
)
from fdsim.workload import NetCost, Workload


def fleet_rounds(rounds: int = 12, count: int = 7) -> Iterator[TraceRound]:
    group = DeviceGroup.model_validate({"profile": "us_nightly", "count": count})
    work = Workload(NetCost(3e8, 0.1, 10**6), np.full(count, 500.0), 4_000_000, 4_000_000)
    return simulate(SimulationConfig((group,), Server(), work, rounds, 5))


def assert_same(a: TraceRound, b: TraceRound) -> None:
    for field in fields(TraceRound):
        np.testing.assert_array_equal(getattr(a, field.name), getattr(b, field.name), err_msg=field.name)


def test_record_and_schema_have_the_same_names() -> None:
    assert {"client", *(field.name for field in fields(TraceRound))} == set(SCHEMA.names)
    assert to_table([blank_round(0, 3, 0.0, 1.0)]).schema.equals(SCHEMA)


@pytest.mark.parametrize("rows_per_group", [1, 10, 21, 1000])
def test_a_trace_reads_back_whatever_its_row_groups(rows_per_group: int, tmp_path: Path) -> None:
    made = list(fleet_rounds())
    trace = write_trace(
        tmp_path / "t.parquet",
        made,
        made_by="me",
        true_cluster=np.arange(7) % 2,
        rows_per_group=rows_per_group,
    )
    assert (trace.clients, trace.rounds, trace.made_by) == (7, 12, "me")
    assert trace.true_cluster is not None
    assert trace.true_cluster.tolist() == [0, 1, 0, 1, 0, 1, 0]
    for a, b in zip(made, trace, strict=True):
        assert_same(a, b)
    assert [r.round for r in trace] == list(range(12)), "it can be read twice"


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 2), min_size=4, max_size=4), min_size=1, max_size=6), st.integers(1, 30)
)
def test_round_trip(outcomes: list[list[int]], rows_per_group: int) -> None:
    import tempfile

    made = []
    for t, row in enumerate(outcomes):
        r = blank_round(t, 4, 10.0 * t, 10.0 * t + 5)
        r.outcome[:] = row
        r.cause[r.outcome == Outcome.dropped] = Cause.offline
        r.phase[r.outcome == Outcome.completed] = Phase.upload
        made.append(r)
    with tempfile.TemporaryDirectory() as folder:
        trace = write_trace(Path(folder) / "t.parquet", made, rows_per_group=rows_per_group)
        for a, b in zip(made, trace, strict=True):
            assert_same(a, b)


def test_the_same_fleet_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = (write_trace(tmp_path / name, fleet_rounds()) for name in ("a", "b"))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert first.content_hash == second.content_hash


def test_words_not_codes_are_on_disk(tmp_path: Path) -> None:
    write_trace(tmp_path / "t.parquet", [plain_round(0, np.array([True, False]), 60.0)])
    frame = pq.read_table(tmp_path / "t.parquet").to_pylist()
    assert [(row["outcome"], row["cause"], row["phase"]) for row in frame] == [
        ("completed", None, "upload"),
        ("dropped", "scripted", "check_in"),
    ]


def test_nothing_half_written_remains(tmp_path: Path) -> None:
    def broken() -> Iterator[TraceRound]:
        yield plain_round(0, np.ones(2, dtype=bool), 60.0)
        raise RuntimeError("the fleet broke")

    with pytest.raises(RuntimeError, match="broke"):
        write_trace(tmp_path / "t.parquet", broken(), rows_per_group=1)
    assert os.listdir(tmp_path) == []


def test_a_disk_that_refuses_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be written"):
        write_trace(tmp_path / "file" / "t.parquet", [])


def test_selected_completed_dropped() -> None:
    r = blank_round(0, 4, 0.0, 1.0)
    r.outcome[:] = [Outcome.completed, Outcome.dropped, Outcome.not_selected, Outcome.completed]
    assert (r.selected.tolist(), r.completed.tolist(), r.dropped.tolist()) == ([0, 1, 3], [0, 3], [1])


def good(t: int) -> TraceRound:
    return plain_round(t, np.array([True, False]), 60.0)


def bent(name: str, value: Any) -> list[TraceRound]:
    r = good(1)
    if np.ndim(getattr(r, name)):
        getattr(r, name)[:] = value
        return [good(0), r]
    return [good(0), replace(r, **{name: value})]


@pytest.mark.parametrize(
    ("rounds", "word"),
    [
        (bent("round", 5), "without a gap"),
        (bent("round_start_s", -50.0), "time runs back"),
        (bent("round_end_s", 1.0), "before it starts"),
        (bent("cause", [-1, -1]), "client 1.*without a cause"),
        (bent("cause", [2, 2]), "client 0.*has a cause"),
        (bent("progress", [0.5, 7.0]), "client 1.*progress"),
        (bent("end_s", [0.0, 90.0]), "client 0.*ends before"),
    ],
)
def test_a_trace_that_contradicts_itself_is_refused(
    rounds: list[TraceRound], word: str, tmp_path: Path
) -> None:
    trace = write_trace(tmp_path / "t.parquet", rounds)
    with pytest.raises(TraceError, match=word):
        list(trace)


def rewritten(tmp_path: Path, change: Any) -> Path:
    table = to_table([good(0), good(1), good(2)])
    pq.write_table(change(table), tmp_path / "t.parquet")
    return tmp_path / "t.parquet"


def with_words(table: pa.Table, name: str, word: str) -> pa.Table:
    return table.set_column(
        table.schema.get_field_index(name), name, pa.array([word] * len(table)).dictionary_encode()
    )


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda t: t.slice(0, 5), "not a whole number of rounds"),
        (lambda t: t.drop_columns(["cause"]), "column 'cause' is missing"),
        (lambda t: t.slice(0, 0), "no rows"),
        (lambda t: t.take([1, 0, 2, 3, 4, 5]), "exactly one row per client"),
        (lambda t: t.take([0, 0, 2, 3, 4, 5]), "exactly one row per client"),
        (lambda t: with_words(t, "cause", "bored"), "unknown cause 'bored'"),
        (lambda t: t.replace_schema_metadata({"fdsim_schema_version": "99"}), "newer fdsim"),
    ],
)
def test_files_that_are_no_traces(change: Any, word: str, tmp_path: Path) -> None:
    path = rewritten(tmp_path, change)
    with pytest.raises(TraceError, match=word):
        list(open_trace(path))


def test_missing_truncated_and_foreign_files(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file"):
        open_trace(tmp_path / "nothing")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(TraceError, match="not a readable Parquet file"):
        open_trace(tmp_path / "text")
    path = write_trace(tmp_path / "t.parquet", [good(0)]).path
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(TraceError, match=r"not a readable Parquet file|is damaged"):
        open_trace(path)
