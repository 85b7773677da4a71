"""What telemetry costs: its share of the quickstart's time, and the size and speed of large tables."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fake_run import FakeScenario

import fdsim
from fdsim.pipeline import run_scenario
from fdsim.scenario import load_scenario
from fdsim.telemetry.events import EventsWriter
from fdsim.telemetry.folder import RunFolder
from fdsim.telemetry.strategy_log import StrategyLog

ROOT = Path(__file__).resolve().parents[2]
EVERYTHING = (
    "telemetry.events=true",
    "telemetry.counterfactual=true",
    "telemetry.tensorboard=true",
    "telemetry.similarity_every=1",
)


class Watch:
    """Adds up the time spent inside the methods it wraps, nested calls counted once."""

    def __init__(self) -> None:
        self.spent_s, self._depth = 0.0, 0

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            self._depth += 1
            began_s = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self._depth -= 1
                if not self._depth:
                    self.spent_s += time.perf_counter() - began_s

        return timed


def share_of_the_quickstart(overrides: tuple[str, ...], folder: Path, patch: pytest.MonkeyPatch) -> float:
    """Run the quickstart three times and return the smallest share of its time that telemetry took."""
    watch = Watch()
    for owner, names in (
        (StrategyLog, ("__enter__", "append", "flush", "checkpoint", "finish", "__exit__")),
        (RunFolder, ("create", "complete", "__exit__")),
        (EventsWriter, ("__enter__", "append", "__exit__")),
    ):
        for name in names:
            found = owner.__dict__[name]
            if isinstance(found, classmethod):
                patch.setattr(owner, name, classmethod(watch.wrap(found.__func__)))
            else:
                patch.setattr(owner, name, watch.wrap(found))
    scenario = load_scenario(ROOT / "scenarios" / "quickstart.toml", list(overrides))
    shares = []
    for attempt in range(3):
        watch.spent_s, began_s = 0.0, time.perf_counter()
        run_scenario(scenario, folder / str(attempt))
        whole_s = time.perf_counter() - began_s
        shares.append(watch.spent_s / whole_s)
        print(f"telemetry {watch.spent_s * 1e3:.0f} ms of {whole_s:.2f} s: {shares[-1]:.2%}")
    return min(shares)


@pytest.mark.benchmark
@pytest.mark.parametrize(
    ("overrides", "bar"), [((), 0.02), (EVERYTHING, 0.05)], ids=["default", "everything"]
)
def test_telemetry_takes_little_of_the_quickstarts_time(
    overrides: tuple[str, ...], bar: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert share_of_the_quickstart(overrides, tmp_path, monkeypatch) < bar


def written(folder: Path, fake: ModuleType, *, clients: int, rounds: int) -> Path:
    scenario: Any = FakeScenario(rounds=rounds)
    rng = np.random.default_rng(1)
    with RunFolder.create(folder, scenario) as run:
        with run.logs["s"] as log:
            for index in range(rounds):
                log.append(fake.fake_row(index, 0.5), fake.fake_clients(index, clients, rng))
            log.finish()
        run.complete()
    return folder


def test_a_million_client_rows_take_less_than_60_megabytes(tmp_path: Path, fake: ModuleType) -> None:
    """Measured on a tenth of them; what a file needs beyond its rows only makes the small one relatively larger."""
    folder = written(tmp_path / "run", fake, clients=1000, rounds=100)
    size = sum(path.stat().st_size for path in (folder / "clients").rglob("*.parquet"))
    assert size < 6_000_000
    assert len(fdsim.open_run(folder).clients) == 100_000


def test_a_short_run_waits_for_the_disk_as_often_as_it_must(
    tmp_path: Path, fake: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk may take 10 ms for each sync, and a trial of a study a second for all else."""
    synced: list[str] = []
    sync = os.fsync

    def noted(handle: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)
        sync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    written(tmp_path / "run", fake, clients=3, rounds=4)
    # Each file is synced and then its folder: the scenario, two empty tables, two parts, and run.json when the run
    # begins, its strategy begins and ends, and the run ends.
    assert sum(name.endswith("run.json.tmp") for name in synced) == 4
    assert len(synced) == 2 * (1 + 2 + 2 + 4)


@pytest.mark.benchmark
def test_a_million_client_rows_load_in_less_than_two_seconds(tmp_path: Path, fake: ModuleType) -> None:
    folder = written(tmp_path / "run", fake, clients=1000, rounds=1000)
    size = sum(path.stat().st_size for path in (folder / "clients").rglob("*.parquet"))
    took = {}
    for name, read in (
        ("open_run", lambda: fdsim.open_run(folder).clients),
        ("pandas", lambda: pd.read_parquet(folder / "clients")),
    ):
        best_s = float("inf")
        for _ in range(3):
            began_s = time.perf_counter()
            assert len(read()) == 1_000_000
            best_s = min(best_s, time.perf_counter() - began_s)
        took[name] = best_s
    print(f"{size / 1e6:.1f} MB; " + ", ".join(f"{name} {s:.2f} s" for name, s in took.items()))
    assert size < 60_000_000
    assert max(took.values()) < 2.0
