"""verify: the same scenario gives the same numbers, and the first difference is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from typer.testing import CliRunner

import fdsim
from fdsim.cli.app import assemble
from fdsim.errors import RunError, RunFolderError
from fdsim.inspect.verify import TOLERANCE, compare_runs, first_difference, verify_run
from fdsim.pipeline import run_scenario
from fdsim.scenario import parse_scenario
from fdsim.telemetry.checksum import checksummed_parquet
from fdsim.telemetry.manifest import Manifest
from fdsim.telemetry.parts import Part, part_paths

TABLES = {
    "name": "tiny",
    "seed": 5,
    "rounds": 5,
    "data": {
        "kind": "digits",
        "partition": {"kind": "clustered", "clusters": 5, "labels_per_cluster": 2, "samples_per_client": 20},
    },
    "net": {"kind": "mlp"},
    "training": {"local_epochs": 1, "batch_size": 10, "learning_rate": 0.1},
    "participation": {"kind": "fixed_ratio", "alpha": 0.5, "clients": 10},
    "strategies": [{"kind": "fdms"}, {"kind": "stale", "name": "stale (b)"}],
    "telemetry": {"similarity_every": 2, "counterfactual": True},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_scenario(parse_scenario(TABLES), tmp_path_factory.mktemp("made") / "run")


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "run")
    return tmp_path / "run"


def change(run: Path, table: str, strategy: str, *, round_index: int, column: str, by: float) -> None:
    """Change one value as a different computer might have, checksum and all."""
    for path in part_paths(run / table / f"strategy={strategy}"):
        rows = Part(path).read()
        hits = pc.equal(rows["round"], round_index)
        first = np.flatnonzero(hits.to_numpy())[:1]
        if len(first):
            values = rows[column].to_numpy().copy()
            values[first] += by
            at = rows.column_names.index(column)
            rows = rows.set_column(
                at, rows.schema.field(column), pa.array(values, rows.schema.field(column).type)
            )
            path.write_bytes(checksummed_parquet(rows))
    # That computer would have recorded its own tables.
    Manifest.read(run).update_strategy(strategy, digests=None)


@pytest.mark.parametrize("quick", [False, True])
def test_a_run_is_the_same_again(made: Path, quick: bool) -> None:
    verdict = verify_run(made, quick=quick)
    assert verdict.difference is None
    assert verdict.rounds == (3 if quick else 5)
    assert verdict.changed == ()


def test_the_first_difference_is_named_by_table_round_client_and_column(made: Path, copy: Path) -> None:
    change(copy, "clients", "fdms", round_index=2, column="weight", by=0.25)
    change(copy, "clients", "fdms", round_index=4, column="weight", by=0.25)
    found = compare_runs(fdsim.open_run(copy), fdsim.open_run(made))
    assert found is not None
    assert str(found).startswith("clients of fdms, round 2, client 0, weight: ")
    change(copy, "rounds", "fdms", round_index=3, column="test_loss", by=1e-12)
    found = compare_runs(fdsim.open_run(copy), fdsim.open_run(made))
    assert found is not None
    assert (found.table, found.place, found.column) == ("rounds", "round 3", "test_loss")
    assert compare_runs(fdsim.open_run(copy), fdsim.open_run(made), tolerance=0.3) is None


def test_real_time_is_left_out(made: Path, copy: Path) -> None:
    change(copy, "rounds", "fdms", round_index=1, column="wall_s", by=9.0)
    assert compare_runs(fdsim.open_run(copy), fdsim.open_run(made)) is None


def test_a_changed_value_fails_the_command(copy: Path) -> None:
    change(copy, "rounds", "fdms", round_index=1, column="update_norm", by=1e-9)
    answer = CliRunner().invoke(assemble(), ["verify", str(copy), "--quick"])
    assert isinstance(answer.exception, RunError)
    assert "not the same. rounds of fdms, round 1, update_norm" in str(answer.exception)
    assert (
        CliRunner().invoke(assemble(), ["verify", str(copy), "--quick", "--tolerance", "1e-4"]).exit_code == 0
    )


def test_other_versions_are_told(copy: Path) -> None:
    facts = json.loads((copy / "run.json").read_text())
    Manifest.read(copy).update(versions={**facts["versions"], "torch": "0.1"})
    answer = CliRunner().invoke(assemble(), ["verify", str(copy), "--quick"])
    assert "the environment changed since the run: torch 0.1 → " in answer.output
    assert "the same bit by bit over 3 rounds" in answer.output


def test_changed_files_are_named_before_anything_runs(copy: Path) -> None:
    text = (copy / "scenario.toml").read_text()
    (copy / "scenario.toml").write_text(text.replace("seed = 5", "seed = 6"))
    with pytest.raises(RunFolderError, match=r"scenario\.toml: the scenario is not the one"):
        verify_run(copy, quick=True)
    (copy / "scenario.toml").write_text(text)
    content = bytearray((copy / "trace.parquet").read_bytes())
    content[100] ^= 1
    (copy / "trace.parquet").write_bytes(content)
    with pytest.raises(RunFolderError, match=r"trace\.parquet: the file is damaged"):
        verify_run(copy, quick=True)


@pytest.mark.parametrize(("key", "value"), [("seed", 6), ("rounds", 4), ("name", "other")])
@pytest.mark.parametrize("quick", [True, False])
def test_what_run_json_says_is_held_against_the_scenario(
    key: str, value: object, quick: bool, copy: Path
) -> None:
    facts = json.loads((copy / "run.json").read_text())
    (copy / "run.json").write_text(json.dumps(facts | {key: value}))
    with pytest.raises(RunFolderError, match=rf"run\.json: {key} is {value!r}, and .* in scenario\.toml"):
        verify_run(copy, quick=quick)


def test_a_late_round_that_was_edited_with_care_is_noticed_without_running_it_again(copy: Path) -> None:
    recorded = (copy / "run.json").read_bytes()
    change(copy, "rounds", "fdms", round_index=4, column="test_loss", by=0.5)
    (copy / "run.json").write_bytes(recorded)
    with pytest.raises(RunFolderError, match="rounds/strategy=fdms is not as the run left it"):
        verify_run(copy, quick=True)


def test_a_run_that_stopped_early_is_compared_as_far_as_it_came(made: Path, copy: Path) -> None:
    for table in ("rounds", "clients", "similarity"):
        for path in part_paths(copy / table / "strategy=fdms"):
            rows = Part(path).read()
            path.write_bytes(checksummed_parquet(rows.filter(pc.less(rows["round"], 3))))
    facts = json.loads((copy / "run.json").read_text())
    facts["status"] = "interrupted"
    facts["strategies"]["fdms"]["status"] = "stopped"
    (copy / "run.json").write_text(json.dumps(facts))
    assert compare_runs(fdsim.open_run(copy), fdsim.open_run(made)) is None


def test_another_training_path_agrees_within_the_stated_tolerance(made: Path, tmp_path: Path) -> None:
    plain = run_scenario(parse_scenario({**TABLES, "acceleration": {"path": "loop"}}), tmp_path / "plain")
    assert compare_runs(fdsim.open_run(made), fdsim.open_run(plain), tolerance=TOLERANCE) is None


def test_nulls_and_missing_rows() -> None:
    one = pd.DataFrame({"round": [0, 1], "loss": [np.nan, 1.0], "cause": pd.Categorical([None, "offline"])})
    assert first_difference("rounds", one, one.copy()) is None
    shorter = first_difference("rounds", one, one.head(1))
    assert str(shorter) == "rounds, after 1 rows, rows: 2 was recorded, now 1"
    null = first_difference("rounds", one, one.assign(loss=[np.nan, np.nan]))
    assert str(null) == "rounds, round 1, loss: 1.0 was recorded, now nan"
    word = first_difference("rounds", one, one.assign(cause=pd.Categorical(["deadline", "offline"])))
    assert word is not None
    assert (word.place, word.column) == ("round 0", "cause")


def test_show_and_list_say_what_a_run_is(made: Path) -> None:
    shown = CliRunner().invoke(assemble(), ["show", str(made)], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    assert "complete, 5/5 rounds" in shown.output
    assert "stale (b)" in shown.output
    listed = CliRunner().invoke(assemble(), ["list", "runs", str(made.parent)], env={"COLUMNS": "200"})
    assert listed.exit_code == 0
    for word in ("complete", "tiny", "5/5", "kB"):
        assert word in listed.output


def test_list_runs_shows_damaged_and_unfinished_runs_too(copy: Path) -> None:
    (copy.parent / "broken").mkdir()
    (copy.parent / "broken" / "run.json").write_text("{")
    facts = json.loads((copy / "run.json").read_text())
    (copy / "run.json").write_text(json.dumps({**facts, "status": "running"}))
    listed = CliRunner().invoke(assemble(), ["list", "runs", str(copy.parent)], env={"COLUMNS": "200"})
    assert "damaged" in listed.output
    # Nobody holds its lock, so nobody is writing it.
    assert "interrupted" in listed.output


def test_list_columns_shows_the_data_dictionary() -> None:
    answer = CliRunner().invoke(assemble(), ["list", "columns"], env={"COLUMNS": "200"})
    for word in ("trace", "rounds", "clients", "similarity", "events", "substitution_error", "soc_end"):
        assert word in answer.output
    wrong = CliRunner().invoke(assemble(), ["list", "columns", "round"])
    assert isinstance(wrong.exception, RunFolderError)
