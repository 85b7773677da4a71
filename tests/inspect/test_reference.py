"""`--reference`: traces made by, and compared with, the reference model of the fleet."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fdsim.files import SEAL_KEY
from fdsim.inspect.reference import ReferenceComparison
from fdsim.pipeline import run_scenario
from fdsim.scenario import parse_scenario
from fdsim.trace import Outcome, blank_round, open_trace

Call = Callable[..., Any]

TABLES = {
    "name": "tiny",
    "seed": 3,
    "rounds": 4,
    "data": {"kind": "digits", "partition": {"kind": "iid"}},
    "net": {"kind": "mlp"},
    "training": {"local_epochs": 1, "batch_size": 10, "learning_rate": 0.1},
    "server": {"start_hour": 20, "round_interval_s": 3600, "eligibility": {"requires_unmetered": False}},
    "fleet": [{"profile": "midrange_phone", "count": 6}],
    "strategies": [{"kind": "dropout"}],
}
WITHOUT_FLEET = {
    **{key: value for key, value in TABLES.items() if key not in ("fleet", "server")},
    "participation": {"kind": "fixed_ratio", "alpha": 0.5, "clients": 6},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_scenario(parse_scenario(TABLES), tmp_path_factory.mktemp("made") / "run")


def write(tables: dict[str, Any], path: Path) -> Path:
    path.write_text(parse_scenario(tables).as_toml())
    return path


def test_a_trace_made_by_the_reference_is_that_of_the_engine(fdsim: Call, tmp_path: Path) -> None:
    scenario = write(TABLES, tmp_path / "s.toml")
    answer = fdsim("trace", "make", scenario, "--out", tmp_path / "slow.parquet", "--reference")
    assert answer.exit_code == 0, answer.err
    assert "6 clients, 4 rounds" in answer.out
    assert fdsim("trace", "make", scenario, "--out", tmp_path / "fast.parquet").exit_code == 0
    slow, fast = (open_trace(tmp_path / name) for name in ("slow.parquet", "fast.parquet"))
    assert slow.made_by == fast.made_by
    comparison = ReferenceComparison()
    assert all(comparison.add(one, other) for one, other in zip(fast, slow, strict=True))
    assert comparison.rows == 24


def test_a_scenario_without_a_fleet_is_refused(fdsim: Call, tmp_path: Path) -> None:
    scenario = write(WITHOUT_FLEET, tmp_path / "s.toml")
    answer = fdsim("trace", "make", scenario, "--out", tmp_path / "t.parquet", "--reference")
    assert answer.exit_code == 2
    assert "participation: the reference model simulates a fleet, and this scenario has none" in answer.err
    assert not (tmp_path / "t.parquet").exists()


def test_a_run_is_verified_against_the_reference(fdsim: Call, made: Path) -> None:
    answer = fdsim("verify", "--reference", made)
    assert answer.exit_code == 0, answer.err
    assert "agrees with the reference over 4 rounds and 24 rows of selected clients" in answer.out
    assert "times differ by at most" in answer.out
    assert len(answer.out.strip().splitlines()) == 1
    assert fdsim("verify", "--reference", "--quick", made).exit_code == 2


@pytest.mark.parametrize(("column", "by"), [("end_s", 1e-6), ("soc_end", 1e-4)])
def test_the_first_difference_is_named_by_round_client_and_column(
    fdsim: Call, made: Path, tmp_path: Path, column: str, by: float
) -> None:
    run = tmp_path / "run"
    shutil.copytree(made, run)
    table = pq.read_table(run / "trace.parquet")
    values = table[column].to_numpy().copy()
    row = int(np.flatnonzero(table["round"].to_numpy() == 2)[4])
    values[row] -= by
    at = table.column_names.index(column)
    changed = table.set_column(at, table.schema.field(at), pa.array(values))
    # Without the checksum, which would tell of the change before anything is compared.
    unsealed = {key: value for key, value in table.schema.metadata.items() if key != SEAL_KEY}
    pq.write_table(changed.replace_schema_metadata(unsealed), run / "trace.parquet")
    facts = json.loads((run / "run.json").read_text())
    facts["trace_hash"] = open_trace(run / "trace.parquet").content_hash
    (run / "run.json").write_text(json.dumps(facts))
    answer = fdsim("verify", "--reference", run)
    assert answer.exit_code == 1
    assert f"the trace differs from the reference. round 2, client 4, {column}: " in answer.err


def test_words_and_round_times_are_compared_too() -> None:
    one, other = blank_round(0, 2, 0.0, 5.0), blank_round(0, 2, 0.0, 5.0)
    assert ReferenceComparison().add(one, other)
    other.outcome[1] = Outcome.completed
    comparison = ReferenceComparison()
    assert not comparison.add(one, other)
    assert comparison.difference == (
        "round 0, client 1, outcome: not_selected is recorded, completed by the reference"
    )
    comparison = ReferenceComparison()
    assert not comparison.add(one, blank_round(0, 2, 0.0, 5.1))
    assert comparison.difference == "round 0, round_end_s: 5.0 is recorded, 5.1 by the reference"
