"""Files of older schema versions read as if they were of today's."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import fdsim
from fdsim.errors import RunFolderError
from fdsim.telemetry.checksum import checksummed_parquet
from fdsim.telemetry.parts import Part
from fdsim.telemetry.schema import SCHEMA_VERSION, TABLES
from fdsim.telemetry.upgrade import upgraded


def as_version_1(path: Path, table: str) -> None:
    """Write a part anew as version 1 had it: without the columns that later versions brought."""
    rows = Part(path).read()
    kept = rows.select([column.name for column in TABLES[table] if column.since == 1])
    metadata = {**rows.schema.metadata, b"fdsim_schema_version": b"1"}
    path.write_bytes(checksummed_parquet(kept.replace_schema_metadata(metadata)))


def test_a_run_of_version_1_reads_with_nulls_in_the_newer_columns(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "old")
    for table in ("rounds", "clients", "similarity"):
        for path in (tmp_path / "old" / table).rglob("*.parquet"):
            as_version_1(path, table)
    old, today = fdsim.open_run(tmp_path / "old"), fdsim.open_run(finished)
    for table in ("rounds", "clients", "similarity"):
        found, expected = old.read(table), today.read(table)
        assert list(found.columns) == list(expected.columns)
        newer = [column.name for column in TABLES[table] if column.since > 1]
        assert newer
        assert found[newer].isna().all(axis=None)
        pd.testing.assert_frame_equal(
            found.drop(columns=newer), expected.drop(columns=newer), check_exact=True
        )
    some = old.read("clients", columns=["weight", "substitute"], rounds=(2, 3), strategy="fdms")
    np.testing.assert_array_equal(
        some["weight"], today.read("clients", rounds=(2, 3), strategy="fdms")["weight"]
    )


def test_steps_lead_from_version_to_version() -> None:
    """A file of version 0 that called the accuracy otherwise and gave it in percent goes through one step."""
    schema = pa.schema([(c.name, c.type) for c in TABLES["rounds"] if c.since == 1])
    rows = pa.table({f.name: pa.array([1], type=f.type) for f in schema}).drop_columns(["test_accuracy"])
    rows = rows.append_column("accuracy_percent", pa.array([87.5]))
    rows = rows.replace_schema_metadata({"fdsim_schema_version": "0"})

    def from_0(name: str, table: pa.Table) -> pa.Table:
        assert name == "rounds"
        accuracy = pc.divide(table["accuracy_percent"], 100.0)
        return table.drop_columns(["accuracy_percent"]).append_column("test_accuracy", accuracy)

    found = upgraded("rounds", rows, Path("x.parquet"), {0: from_0})
    assert found.column_names == [column.name for column in TABLES["rounds"]]
    assert found["test_accuracy"].to_pylist() == [0.875]
    rows = rows.replace_schema_metadata({"fdsim_schema_version": "1"})
    with pytest.raises(RunFolderError, match=r"x\.parquet: column 'test_accuracy' is missing"):
        upgraded("rounds", rows, Path("x.parquet"), {0: from_0})


def test_a_table_without_a_version_is_refused() -> None:
    with pytest.raises(RunFolderError, match=r"x\.parquet: not a table of fdsim"):
        upgraded("rounds", pa.table({"round": [1]}), Path("x.parquet"))


def test_no_column_is_newer_than_the_schema() -> None:
    assert all(1 <= column.since <= SCHEMA_VERSION for columns in TABLES.values() for column in columns)


def test_a_missing_column_of_todays_version_is_named(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    path = tmp_path / "run" / "rounds" / "strategy=fdms" / "part-000001.parquet"
    rows = Part(path).read()
    path.write_bytes(checksummed_parquet(rows.drop_columns(["test_loss"])))
    with pytest.raises(RunFolderError, match=r"\.parquet: column 'test_loss' is missing"):
        _ = fdsim.open_run(tmp_path / "run").rounds


def test_the_manifest_keeps_unknown_facts(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    (tmp_path / "run" / "run.json").write_text(json.dumps({**facts, "note": "kept"}))
    assert fdsim.open_run(tmp_path / "run").manifest["note"] == "kept"
