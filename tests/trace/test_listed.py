"""Traces of very many clients, in which only selected clients have a row."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from fdsim.errors import TraceError
from fdsim.participation.base import ParticipationSetting
from fdsim.participation.simple import Bernoulli
from fdsim.trace import TraceRound, blank_round, open_trace, write_trace
from fdsim.trace.round import ALL_LISTED_UP_TO

CLIENTS = ALL_LISTED_UP_TO + 1


def same(first: TraceRound, second: TraceRound) -> None:
    for field in fields(TraceRound):
        np.testing.assert_array_equal(getattr(first, field.name), getattr(second, field.name), field.name)


def some_rounds() -> list[TraceRound]:
    source = Bernoulli(clients=CLIENTS, active_prob=0.5, clients_per_round=40)
    rounds = list(source.rounds(ParticipationSetting(rounds=4, seed=3, round_interval_s=60.0)))
    rounds[2] = blank_round(2, CLIENTS, 120.0, 180.0)  # nobody is selected
    return rounds


def test_what_was_written_is_read_though_most_clients_have_no_row(tmp_path: Path) -> None:
    rounds = some_rounds()
    trace = write_trace(tmp_path / "trace.parquet", rounds)
    assert (trace.clients, trace.rounds, trace.lists_all) == (CLIENTS, 4, False)
    assert pq.read_metadata(trace.path).num_rows == 40 + 40 + 1 + 40
    for written, read in zip(rounds, trace, strict=True):
        same(written, read)
    assert [len(r.listed) for r in rounds] == [40, 40, 1, 40]


def test_a_round_may_span_row_groups(tmp_path: Path) -> None:
    rounds = some_rounds()
    table = pq.read_table(write_trace(tmp_path / "trace.parquet", rounds).path)
    pq.write_table(table, tmp_path / "split.parquet", row_group_size=7)
    trace = open_trace(tmp_path / "split.parquet")
    for written, read in zip(rounds, trace, strict=True):
        same(written, read)


def test_clients_out_of_order_are_refused(tmp_path: Path) -> None:
    table = pq.read_table(write_trace(tmp_path / "trace.parquet", some_rounds()).path)
    shuffled = table.take(list(range(39, -1, -1)) + list(range(40, len(table))))
    pq.write_table(shuffled, tmp_path / "shuffled.parquet")
    with pytest.raises(TraceError, match="round 0: its clients do not ascend"):
        list(open_trace(tmp_path / "shuffled.parquet"))


def test_up_to_a_hundred_thousand_every_client_has_a_row(tmp_path: Path) -> None:
    source = Bernoulli(clients=50, active_prob=0.5, clients_per_round=8)
    rounds = list(source.rounds(ParticipationSetting(rounds=3, seed=3, round_interval_s=60.0)))
    trace = write_trace(tmp_path / "trace.parquet", rounds)
    assert trace.lists_all
    assert pq.read_metadata(trace.path).num_rows == 150
    assert [len(r.selected) for r in trace] == [8, 8, 8]
    assert rounds[0].selected.tolist() != rounds[1].selected.tolist()
