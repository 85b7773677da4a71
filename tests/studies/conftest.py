"""A tiny world that studies are made of: six clients in three clusters, a few rounds, a net of a few weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

BASE = """
name = "tiny"
seed = 1
rounds = {rounds}
[data]
kind = "synthetic"
shape = [1, 4, 4]
train_samples = 300
test_samples = 100
partition = {{ kind = "clustered", clusters = 3, labels_per_cluster = 3, samples_per_client = 20 }}
[net]
kind = "mlp"
[training]
local_steps = 2
batch_size = 5
learning_rate = 0.1
[participation]
kind = "fixed_ratio"
clients = 6
alpha = 0.34
[telemetry]
checkpoint_every = 2
flush_every_s = 0.05
[[strategies]]
kind = "dropout"
[[strategies]]
kind = "fdms"
"""

StudyWriter = Callable[..., Path]
Tables = dict[str, dict[str, pd.DataFrame]]


def _write(place: Path, study: str, *, rounds: int = 5, more: str = "") -> Path:
    place.mkdir(exist_ok=True)
    (place / "base.toml").write_text(BASE.format(rounds=rounds) + more)
    path = place / "study.toml"
    path.write_text(study)
    return path


@pytest.fixture(scope="session")
def study_in() -> StudyWriter:
    """Write base.toml and a study file into a folder, and return the study's path."""
    return _write


@pytest.fixture
def write_study(tmp_path: Path) -> StudyWriter:
    """The same, into a folder of the test's own."""

    def write(study: str, *, rounds: int = 5, more: str = "", folder: str = "world") -> Path:
        return _write(tmp_path / folder, study, rounds=rounds, more=more)

    return write


@pytest.fixture(scope="session")
def tables_of() -> Callable[[Path], Tables]:
    """Read every table of every trial of a study, but for real times, which no two runs share."""

    def read(study: Path) -> Tables:
        from fdsim.studies.folder import read_study
        from fdsim.telemetry.reader import open_run

        found: Tables = {}
        for trial in read_study(study)["trials"]:
            run = open_run(study / trial["folder"])
            assert run.status == "complete"
            tables = {"rounds": run.rounds, "clients": run.clients, "trace": run.trace}
            found[trial["scenario_hash"]] = {
                name: table.drop(columns=[c for c in table.columns if c.startswith("wall_")])
                for name, table in tables.items()
            }
        return found

    return read


@pytest.fixture
def same_tables() -> Callable[[Tables, Tables], None]:
    """Asserts that two studies found the same, to the last bit."""

    def check(left: Tables, right: Tables) -> None:
        assert left.keys() == right.keys()
        assert left
        for trial, tables in left.items():
            for name, table in tables.items():
                pd.testing.assert_frame_equal(table, right[trial][name], check_exact=True)
                assert len(table)

    return check
