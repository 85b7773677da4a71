"""What a run must be at any moment, and in the end."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import torch

import fdsim
from fdsim.telemetry.schema import TABLES

ROOT = Path(__file__).resolve().parents[2]


def same_run(one: Path, other: Path) -> None:
    """Hold two complete runs equal: every table bit by bit, real time left out, events, final models, scenario."""
    a, b = fdsim.open_run(one), fdsim.open_run(other)
    assert a.doubts() == b.doubts() == []
    assert a.status == b.status == "complete"
    assert (one / "scenario.toml").read_bytes() == (other / "scenario.toml").read_bytes()
    pd.testing.assert_frame_equal(a.trace, b.trace, check_exact=True)
    if (other / "events.parquet").exists():
        pd.testing.assert_frame_equal(a.events, b.events, check_exact=True)
    for table in ("rounds", "clients", "similarity"):
        wall = [column.name for column in TABLES[table] if column.is_wall_time]
        mine, theirs = (run.read(table).drop(columns=wall, errors="ignore") for run in (a, b))
        pd.testing.assert_frame_equal(mine, theirs, check_exact=True)
    for label in a.strategies:
        mine, theirs = a.model_state(label), b.model_state(label)
        assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


def readable(folder: Path) -> None:
    """Hold a run that stopped at any moment to be readable: every Parquet file opens, and every verb of a reader works."""
    for path in folder.rglob("*.parquet"):
        pq.read_table(path)
    if (folder / "run.json").exists():
        run = fdsim.open_run(folder)
        assert run.doubts() == []
        assert all(count >= 0 for count in run.progress.values())
        assert len(run.rounds) == sum(run.progress.values())
