"""A tiny run without learning, and what the tests of the telemetry ask of every run folder."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pandas as pd
import pyarrow.parquet as pq
import pytest

import fdsim
from fdsim.telemetry.schema import TABLES

# Beside this file, so that forked and spawned processes find it by the same name.
sys.path.insert(0, str(Path(__file__).parent))
import fake_run as _fake_run


@pytest.fixture(scope="session")
def fake() -> ModuleType:
    """The module `fake_run`."""
    return _fake_run


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete run that nobody may change."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    _fake_run.fake_run(folder)
    return folder


def without_wall_time(table: str, frame: pd.DataFrame) -> pd.DataFrame:
    """Leave out the columns of real time."""
    return frame.drop(columns=[c.name for c in TABLES[table] if c.is_wall_time and c.name in frame])


class Checks:
    """What must hold of every run folder."""

    @staticmethod
    def same(one: Path, other: Path) -> None:
        """Both runs have the same values in all tables, bit by bit, real time left out."""
        a, b = fdsim.open_run(one), fdsim.open_run(other)
        assert a.status == b.status == "complete"
        pd.testing.assert_frame_equal(a.trace, b.trace, check_exact=True)
        for table in ("rounds", "clients", "similarity"):
            mine, theirs = (without_wall_time(table, run.read(table)) for run in (a, b))
            pd.testing.assert_frame_equal(mine, theirs, check_exact=True)

    @staticmethod
    def readable(folder: Path, reference: Path) -> int:
        """Every Parquet file opens, and the rows there are a beginning of the reference's; counts the rounds."""
        for path in folder.rglob("*.parquet"):
            pq.read_table(path)
        if not (folder / "run.json").exists():
            return 0
        run, whole = fdsim.open_run(folder), fdsim.open_run(reference)
        rounds = 0
        plain = pd.read_parquet(folder / "rounds")
        for label in run.strategies:
            for table in ("rounds", "clients", "similarity"):
                found = without_wall_time(table, run.read(table, strategy=label))
                expected = without_wall_time(table, whole.read(table, strategy=label))
                pd.testing.assert_frame_equal(found, expected.head(len(found)), check_exact=True)
            there = plain.loc[plain["strategy"].astype(str) == label, "round"]
            assert list(there) == list(range(len(there)))
            rounds += len(there)
        return rounds


@pytest.fixture(scope="session")
def checks() -> type[Checks]:
    """What must hold of every run folder."""
    return Checks
