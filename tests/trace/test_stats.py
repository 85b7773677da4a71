"""Statistics against hand-counted examples and theory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from fdsim.cli.trace import app
from fdsim.participation.base import ParticipationSetting
from fdsim.participation.simple import Markov
from fdsim.trace import Cause, plain_round, write_trace
from fdsim.trace.stats import stats_rows, trace_stats


def test_a_hand_counted_trace(tmp_path: Path) -> None:
    """Three clients, four rounds, x for completed: 0 xx.x, 1 .x.x, 2 ....; clusters 0 0 1."""
    rows = ["x..", "xx.", "...", "xx."]
    rounds = [
        plain_round(t, np.array([c == "x" for c in row]), 3_600.0, Cause.offline if t < 2 else Cause.in_use)
        for t, row in enumerate(rows)
    ]
    found = trace_stats(write_trace(tmp_path / "t.parquet", rounds, true_cluster=np.array([0, 0, 1])))
    assert found.dropout_rate == pytest.approx(7 / 12)
    assert found.dropout_by_round.tolist() == pytest.approx([2 / 3, 1 / 3, 1, 1 / 3])
    assert found.causes == pytest.approx({"in_use": 4 / 7, "offline": 3 / 7})
    assert found.participation.tolist() == pytest.approx([0.75, 0.5, 0.0])
    assert found.never_frac == pytest.approx(1 / 3)
    assert found.empty_rounds == 1
    assert found.completed_runs == {1: 3, 2: 1}
    assert found.missed_runs == {1: 3, 4: 1}
    # Completed in rounds 0..2: client 0 twice, client 1 once; missed next: client 0 after round 1, client 1 after 1.
    assert found.leave_within[1] == pytest.approx(2 / 3)
    assert found.by_hour[:4].tolist() == pytest.approx([1 / 3, 2 / 3, 0, 2 / 3])
    # Client 1 has client 0 in round 0; client 2 never has a friend; in round 2 nobody does.
    assert found.friend_present_frac == pytest.approx(1 / 7)
    assert 0 < (found.mutual_information_bits or 0) < 1


def test_a_markov_chain_has_the_autocorrelation_of_theory(tmp_path: Path) -> None:
    """Correlation after n rounds is (1 − drop − return)^n."""
    source = Markov(clients=200, drop_prob=0.1, return_prob=0.2)
    trace = write_trace(tmp_path / "t.parquet", source.rounds(ParticipationSetting(300, 1, 60.0)))
    found = trace_stats(trace)
    assert found.dropout_rate == pytest.approx(1 / 3, abs=0.02)
    assert found.autocorrelation[:3].tolist() == pytest.approx([0.7, 0.49, 0.343], abs=0.03)
    assert found.leave_within[1] == pytest.approx(0.1, abs=0.01)
    assert found.leave_within[3] == pytest.approx(1 - 0.9**3, abs=0.02)


def test_the_command_shows_and_writes_the_same_numbers(tmp_path: Path) -> None:
    rounds = (plain_round(t, np.array([True, t % 2 == 0]), 60.0) for t in range(6))
    write_trace(tmp_path / "t.parquet", rounds)
    out = tmp_path / "s.parquet"
    result = CliRunner().invoke(
        app, ["stats", str(tmp_path / "t.parquet"), "--out", str(out)], catch_exceptions=False
    )
    assert "dropout rate" in result.output
    assert "0.25" in result.output
    table = pq.read_table(out).to_pylist()
    assert [(r["table"], r["key"], r["value"]) for r in table] == stats_rows(tmp_path / "t.parquet")
