"""Reading runs: the right dtypes, the rows asked for, and one clear error for each kind of damage."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from fake_run import FakeScenario

import fdsim
from fdsim.errors import FdsimError, InputError, RunFolderError
from fdsim.telemetry.checksum import checksummed_parquet
from fdsim.telemetry.folder import RunFolder
from fdsim.telemetry.schema import CLIENT_COLUMNS, ROUND_COLUMNS, SCHEMA_VERSION

SCENARIO: Any = FakeScenario(rounds=1)
PART = Path("rounds") / "strategy=fdms" / "part-000001.parquet"


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """A complete run that may be damaged."""
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def test_tables_have_one_row_per_key_and_sensible_dtypes(finished: Path) -> None:
    run = fdsim.open_run(finished)
    assert len(run.rounds) == 2 * 12
    assert len(run.clients) == 2 * 12 * 6
    assert len(run.trace) == 12 * 6
    assert not run.rounds.duplicated(["strategy", "round"]).any()
    assert list(run.rounds.columns) == ["strategy", *(c.name for c in ROUND_COLUMNS)]
    assert list(run.clients.columns) == ["strategy", *(c.name for c in CLIENT_COLUMNS)]
    assert run.rounds["strategy"].dtype == "category"
    assert list(run.rounds["strategy"].cat.categories) == ["fdms", "<script>/é"]
    assert run.rounds["round"].dtype == np.int32
    assert run.clients["stand_in"].dtype == pd.Int32Dtype()
    assert list(run.clients["outcome"].cat.categories) == ["completed", "dropped", "not_selected"]
    assert run.rounds["test_accuracy"].isna().tolist() == [r % 3 == 1 for r in run.rounds["round"]]


def test_plain_pandas_reads_the_same(finished: Path) -> None:
    plain = pd.read_parquet(finished / "rounds").sort_values(["strategy", "round"])
    ours = fdsim.open_run(finished).rounds.sort_values("strategy", key=lambda s: s.astype(str), kind="stable")
    assert plain["strategy"].astype(str).tolist() == ours["strategy"].astype(str).tolist()
    for column in ("round", "test_loss", "bytes_up"):
        np.testing.assert_array_equal(plain[column].to_numpy(), ours[column].to_numpy())


def test_duckdb_and_polars_read_the_same(finished: Path) -> None:
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    expected = fdsim.open_run(finished).clients
    glob = f"{finished}/clients/*/*.parquet"
    ((count, weight, labels),) = duckdb.sql(
        f"select count(*), sum(weight), count(distinct strategy) from read_parquet('{glob}', hive_partitioning = true)"
    ).fetchall()
    assert (count, labels) == (len(expected), 2)
    assert weight == pytest.approx(expected["weight"].sum(), rel=1e-5)
    frame = polars.scan_parquet(finished / "clients", hive_partitioning=True).collect()
    assert frame.height == len(expected)
    assert set(frame["strategy"].unique()) == {"fdms", "<script>/é"}
    assert frame["cause"].null_count() == expected["cause"].isna().sum()


def test_columns_rounds_and_strategies_can_be_chosen(finished: Path) -> None:
    run = fdsim.open_run(finished)
    some = run.read("clients", columns=["round", "weight"], rounds=(3, 5), strategy="fdms")
    assert list(some.columns) == ["strategy", "round", "weight"]
    assert sorted(some["round"].unique()) == [3, 4, 5]
    whole = run.clients.query("strategy == 'fdms' and 3 <= round <= 5").reset_index(drop=True)
    np.testing.assert_array_equal(some["weight"], whole["weight"])
    assert run.read("rounds", rounds=(10, None))["round"].tolist() == [10, 11, 10, 11]
    assert run.read("trace", columns=["round", "cause"], rounds=(None, 1)).shape == (12, 2)


def test_similarity_is_a_snapshot(finished: Path) -> None:
    run = fdsim.open_run(finished)
    assert len(run.similarity(5)) == 2 * 15
    assert set(run.similarity(strategy="fdms")["round"]) == {11}
    with pytest.raises(RunFolderError, match=r"no snapshot after round 6.*2, 5, 8, 11"):
        run.similarity(6)


def test_what_does_not_exist_is_named(finished: Path) -> None:
    run = fdsim.open_run(finished)
    attempts: dict[str, Callable[[], object]] = {
        "no table called 'round'": lambda: run.read("round"),
        "no column called 'acuracy'": lambda: run.read("rounds", columns=["acuracy"]),
        "no strategy called 'fdm'": lambda: run.read("rounds", strategy="fdm"),
        "does not depend on the strategy": lambda: run.read("trace", strategy="fdms"),
        "no event log was written": lambda: run.events,
    }
    for message, attempt in attempts.items():
        with pytest.raises(RunFolderError, match=message):
            attempt()


def test_events_are_read_and_checked(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", SCENARIO) as run, run.events_writer() as events:
        events.append(0.5, 3, "link_lost")
        events.append(1.5, None, "outage", 2.0)
        assert not (tmp_path / "run" / "events.parquet").exists()
    frame = fdsim.open_run(tmp_path / "run").events
    assert frame["what"].tolist() == ["link_lost", "outage"]
    assert frame["client"].tolist() == [3, pd.NA]
    assert np.isnan(frame["value"][0])
    flip(tmp_path / "run" / "events.parquet", 10)
    with pytest.raises(RunFolderError, match=r"events\.parquet: the file is damaged"):
        _ = fdsim.open_run(tmp_path / "run").events


def test_an_interrupted_event_log_leaves_no_file(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", SCENARIO) as run:
        events = run.events_writer()
        with pytest.raises(ValueError, match="odd"), events:
            raise ValueError(events.append(0.5, 3, "link_lost") or "odd")
        assert not (tmp_path / "run" / "events.parquet").exists()
        assert not list((tmp_path / "run" / ".tmp").iterdir())


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0x04
    path.write_bytes(content)


def read_all(path: Path) -> None:
    run = fdsim.open_run(path)
    for table in ("trace", "rounds", "clients", "similarity"):
        run.read(table)


def test_one_flipped_byte_in_any_file_is_one_error_that_names_it(copy: Path) -> None:
    read_all(copy)
    rng = np.random.default_rng(5)
    for path in sorted(copy.rglob("*.parquet")):
        content = path.read_bytes()
        for place in rng.integers(0, len(content), 3):
            flip(path, int(place))
            with pytest.raises(RunFolderError) as caught:
                read_all(copy)
            assert caught.value.place == str(path)
            path.write_bytes(content)
    read_all(copy)


def test_a_folder_that_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"not a run: it has no run\.json"):
        fdsim.open_run(tmp_path)
    with pytest.raises(RunFolderError, match="there is no such folder"):
        fdsim.open_run(tmp_path / "nowhere")


@pytest.mark.parametrize("text", ["", "{", "[1]", "{}", '{"run_version": "x", "strategies": {}}'])
def test_a_damaged_manifest_is_named(copy: Path, text: str) -> None:
    (copy / "run.json").write_text(text)
    with pytest.raises(RunFolderError, match=r"run\.json: (the file is damaged|not a run's manifest)"):
        fdsim.open_run(copy)


def test_a_run_of_a_newer_version_is_refused(copy: Path) -> None:
    facts = json.loads((copy / "run.json").read_text())
    (copy / "run.json").write_text(json.dumps({**facts, "run_version": 99}))
    with pytest.raises(RunFolderError, match=r"run\.json: written by a newer fdsim \(run version 99\)"):
        fdsim.open_run(copy)


def test_a_table_of_a_newer_schema_is_refused(copy: Path) -> None:
    table = pq.read_table(copy / PART)
    newer = {**table.schema.metadata, b"fdsim_schema_version": str(SCHEMA_VERSION + 1).encode()}
    (copy / PART).write_bytes(checksummed_parquet(table.replace_schema_metadata(newer)))
    with pytest.raises(
        RunFolderError, match=rf"{PART}: written by a newer fdsim \(schema {SCHEMA_VERSION + 1}\)"
    ):
        _ = fdsim.open_run(copy).rounds


def test_a_missing_part_or_table_is_named(copy: Path) -> None:
    sorted((copy / "rounds" / "strategy=fdms").iterdir())[-1].unlink()
    with pytest.raises(
        RunFolderError, match=r"strategy=fdms: 8 rows were found, 12 were written: a part is missing"
    ):
        _ = fdsim.open_run(copy).rounds
    (copy / PART).unlink()
    with pytest.raises(RunFolderError, match=r"part-000001\.parquet: the part is missing"):
        _ = fdsim.open_run(copy).rounds
    (copy / "trace.parquet").unlink()
    with pytest.raises(RunFolderError, match=r"trace\.parquet: there is no such file"):
        _ = fdsim.open_run(copy).trace
    (copy / "scenario.toml").write_text("= broken")
    with pytest.raises(RunFolderError, match=r"scenario\.toml: the file is damaged"):
        _ = fdsim.open_run(copy).settings


def test_row_groups_let_a_filter_on_rounds_skip_most_of_a_table(
    tmp_path: Path, fake: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fdsim.telemetry.checksum.GROUP_ROWS", 50)
    fake.fake_run(tmp_path / "run", rounds=50, clients=10, every=7, labels=("s",))
    parts = ds.dataset(tmp_path / "run" / "clients", partitioning="hive")
    late = [f.subset(ds.field("round") > 40).row_groups for f in parts.get_fragments()]
    assert sum(len(groups) for groups in late) == 2
    assert sum(f.metadata.num_row_groups for f in parts.get_fragments()) == 10
    assert len(pd.read_parquet(tmp_path / "run" / "clients", filters=[("round", ">", 40)])) == 90


def test_files_say_what_they_are(finished: Path) -> None:
    metadata = pq.read_schema(finished / PART).metadata
    assert metadata[b"fdsim_table"] == b"rounds"
    assert metadata[b"fdsim_schema_version"] == str(SCHEMA_VERSION).encode()
    assert metadata[b"fdsim_scenario_hash"].decode() == fdsim.open_run(finished).manifest["scenario_hash"]
    column = pq.ParquetFile(finished / PART).metadata.row_group(0).column(0)
    assert column.compression == "ZSTD"
    assert pa.types.is_dictionary(
        pq.read_schema(next((finished / "clients").rglob("*.parquet"))).field("outcome").type
    )


def test_readers_meet_no_half_written_run(tmp_path: Path, fake: ModuleType) -> None:
    """pandas, DuckDB, polars and fdsim read over and over while another process writes every round."""
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    run = tmp_path / "run"
    command = [sys.executable, fake.__file__, str(run), "--rounds", "25", "--every", "1", "--pause-s", "0.01"]
    reads = 0
    with subprocess.Popen(command) as writer:
        while writer.poll() is None and not _all_learned(run):
            if not (run / "run.json").exists():
                continue
            frame = pd.read_parquet(run / "rounds")
            assert not frame.duplicated(["strategy", "round"]).any()
            ours = fdsim.open_run(run).clients
            assert (ours.groupby(["strategy", "round"], observed=True).size() == 6).all()
            try:
                polars.read_parquet(run / "rounds", hive_partitioning=True)
                duckdb.sql(f"select max(round) from read_parquet('{run}/rounds/*/*.parquet')").fetchall()
            except (polars.exceptions.PolarsError, duckdb.Error, OSError):
                # Small parts are merged when the run ends: who has listed them just before has to read again.
                if not _all_learned(run):
                    raise
            reads += 1
    assert writer.returncode == 0
    assert reads > 2


def _all_learned(run: Path) -> bool:
    """After the last round the small parts are merged, which a reader that has just listed them may notice."""
    if not (run / "run.json").exists():
        return False
    return sum(fdsim.open_run(run).progress.values()) >= 44


def test_parts_merged_while_being_read_are_read_again(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fdsim.telemetry import table_reader
    from fdsim.telemetry.parts import Part, part_paths

    folder = copy / "rounds" / "strategy=fdms"
    whole = fdsim.open_run(copy).rounds

    def merge_first(path: Path) -> Part:
        monkeypatch.undo()
        merged = pa.concat_tables([Part(p).read() for p in part_paths(folder)])
        for p in part_paths(folder):
            p.unlink()
        (folder / "part-000000.parquet").write_bytes(checksummed_parquet(merged))
        return Part(path)

    monkeypatch.setattr(table_reader, "Part", merge_first)
    run = fdsim.open_run(copy)
    pd.testing.assert_frame_equal(run.rounds, whole)
    assert len(part_paths(folder)) == 1


def test_importing_fdsim_and_asking_for_nothing_loads_no_pandas() -> None:
    code = "import sys, fdsim; assert not {'pandas', 'torch', 'pyarrow'} & set(sys.modules); fdsim.open_run"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'open_rum'"):
        fdsim.open_rum  # noqa: B018


def test_errors_of_run_folders_are_input_errors() -> None:
    assert issubclass(RunFolderError, InputError)
    assert issubclass(InputError, FdsimError)
