"""`fdsim verify RUN`: does the same scenario, run again, give the same numbers?

The contract: with the same versions and the same kind of accelerator, every value of every table is identical, bit by
bit, real time (columns wall_…) left out. Across stack sizes, training paths and thread counts the sums are added in
another order; there the values agree within `TOLERANCE`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fdsim.catalogue import OwnCode, own_kinds
from fdsim.errors import InputError, RunFolderError
from fdsim.files import hash_of
from fdsim.scenario import Scenario, load_scenario
from fdsim.telemetry.manifest import ENDED, versions
from fdsim.telemetry.reader import Run, open_run
from fdsim.telemetry.rows import clients_table, rounds_table, similarity_table
from fdsim.telemetry.schema import TABLES

if TYPE_CHECKING:
    import pandas as pd

    from fdsim.telemetry.schema import ClientRows, RoundRow, SimilaritySnapshot

#: How far values may lie apart, relative to the larger one or 1, when something other than the seed differs.
TOLERANCE = 1e-4
#: Columns that jump when values which are equal but for rounding change places; a tolerance leaves them out.
JUMPS = frozenset({"cluster_agreement"})
#: Rounds that --quick runs again.
QUICK_ROUNDS = 3

_KEYS = {"trace": ("round", "client"), "rounds": ("round",), "clients": ("round", "client")}
_PAIR = ("round", "first", "second")
#: What may change numbers; another pandas, say, may not.
_MATTERS = ("python", "fdsim", "torch", "torchvision", "numpy", "scipy", "scikit-learn", "simpy")


@dataclass(frozen=True)
class Difference:
    """The first place where two runs differ."""

    table: str
    strategy: str | None
    place: str
    column: str
    recorded: object
    again: object

    def __str__(self) -> str:
        whose = f" of {self.strategy}" if self.strategy else ""
        return f"{self.table}{whose}, {self.place}, {self.column}: {self.recorded} was recorded, now {self.again}"


@dataclass(frozen=True)
class Verdict:
    """What a verification found."""

    rounds: int
    """Rounds of each strategy that were compared."""
    difference: Difference | None
    changed: tuple[str, ...]
    """What changed in the environment since the run: 'torch 2.7 → 2.8'."""
    failed: tuple[str, ...] = ()
    """The strategies that failed in the run."""


def first_difference(
    table: str, recorded: pd.DataFrame, again: pd.DataFrame, *, tolerance: float = 0.0
) -> Difference | None:
    """Compare two tables value by value, in order of rounds; NaN and null equal themselves."""
    strategies = list(dict.fromkeys(recorded["strategy"])) if "strategy" in recorded else [None]
    for strategy in strategies:
        one, other = (_of(frame, strategy) for frame in (recorded, again))
        found = _first(table, strategy, one, other, tolerance)
        if found is not None:
            return found
    return None


def _of(frame: pd.DataFrame, strategy: str | None) -> pd.DataFrame:
    if strategy is None:
        return frame
    return frame[frame["strategy"] == strategy].drop(columns="strategy").reset_index(drop=True)


def _first(
    table: str, strategy: str | None, one: pd.DataFrame, other: pd.DataFrame, tolerance: float
) -> Difference | None:
    shared = min(len(one), len(other))
    wall = {column.name for column in TABLES.get(table, ()) if column.is_wall_time}
    skipped = wall | JUMPS if tolerance else wall
    columns = [name for name in one.columns if name not in skipped]
    unequal = np.column_stack(
        [_unequal(one[c].head(shared), other[c].head(shared), tolerance) for c in columns]
    )
    rows = np.flatnonzero(unequal.any(axis=1))
    if len(rows):
        row, column = int(rows[0]), columns[int(np.argmax(unequal[rows[0]]))]
        return Difference(
            table, strategy, _place(table, one, row), column, one[column][row], other[column][row]
        )
    if len(one) != len(other):
        return Difference(table, strategy, f"after {shared} rows", "rows", len(one), len(other))
    return None


def _unequal(one: pd.Series, other: pd.Series, tolerance: float) -> np.ndarray:
    a, b = (_plain(series) for series in (one, other))
    if a.dtype == object or b.dtype == object:
        return np.asarray(a != b, dtype=bool)
    both_nan = np.isnan(a) & np.isnan(b)
    if tolerance:
        scale = np.maximum(1.0, np.maximum(np.abs(a), np.abs(b)))
        return np.asarray(~((np.abs(a - b) <= tolerance * scale) | both_nan))
    return np.asarray(~((a == b) | both_nan))


def _plain(series: pd.Series) -> np.ndarray:
    """Return words as objects with '' for null, numbers as float64 with NaN (exact: all integers here are below 2⁵³)."""
    if series.dtype.kind in "iufb" and not hasattr(series.dtype, "categories"):
        return series.to_numpy(dtype=np.float64, na_value=np.nan)
    return series.astype(object).where(series.notna(), "").to_numpy()


def _place(table: str, frame: pd.DataFrame, row: int) -> str:
    return ", ".join(f"{key} {frame[key][row]}" for key in _KEYS.get(table, _PAIR))


def compare_runs(recorded: Run, again: Run, *, tolerance: float = 0.0) -> Difference | None:
    """Return the first difference between two runs; rounds the recorded one has not reached are left out."""
    found = first_difference("trace", recorded.trace, again.trace, tolerance=tolerance)
    for table in ("rounds", "clients", "similarity"):
        if found is None:
            one, other = recorded.read(table), again.read(table)
            if recorded.status not in ENDED:
                other = _as_far_as(one, other)
            found = first_difference(table, one, other, tolerance=tolerance)
    return found


def _as_far_as(one: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    last = one.groupby("strategy", observed=True)["round"].max()
    return other[other["round"] <= other["strategy"].map(last).astype(float)].reset_index(drop=True)


def verify_run(
    path: Path | str, *, quick: bool = False, tolerance: float = 0.0, code: Path | None = None
) -> Verdict:
    """Run a run's scenario again and compare; `quick` checks all hashes and the first rounds only.

    `code` is the folder that classes which the scenario names as `module:Class` are imported from.
    """
    run = Run(path)
    check_hashes(run)
    scenario = trusted_scenario(run, code)
    if quick:
        rounds, found = _compare_first_rounds(run, scenario, tolerance)
    else:
        rounds, found = int(run.manifest["rounds"]), _compare_all(run, scenario, tolerance)
    if found is None:
        # Rounds that were not run again, and the event log, may have been edited all the same.
        for doubt in run.doubts():
            raise RunFolderError(
                str(run.path), doubt, "restore the file from a copy, or run the scenario again"
            )
    return Verdict(rounds, found, tuple(_changed(run)), tuple(run.failed))


def trusted_scenario(run: Run, code: Path | None) -> Scenario:
    """Return a run's scenario to run it again, with the classes that it names imported from `code` alone.

    A run folder is data. Whoever wants the code it names to be run says where that code is.
    """
    path = run.path / "scenario.toml"
    named = own_kinds(run.tables)
    if not named:
        return run.scenario
    if code is None:
        raise RunFolderError(
            str(path),
            f"names code of its own, '{named[0]}', and a run folder is not trusted to say where it is",
            "give the folder of your module with --code FOLDER",
        )
    if not code.is_dir():
        raise InputError("--code", f"there is no folder '{code}'", "give the folder that your module is in")
    return load_scenario(path, code=OwnCode("import", code))


def check_hashes(run: Run) -> None:
    """Raise an error that names the file which changed since it was written: scenario, trace, events, any part."""
    manifest = run.manifest
    if hash_of(run.tables) != manifest["scenario_hash"]:
        raise RunFolderError(
            str(run.path / "scenario.toml"),
            "the scenario is not the one that the run used",
            "restore it from a copy",
        )
    for key in ("name", "seed", "rounds"):
        if run.tables.get(key) != manifest[key]:
            raise RunFolderError(
                str(run.path / "run.json"),
                f"{key} is {manifest[key]!r}, and {run.tables.get(key)!r} in scenario.toml",
                "restore it from a copy",
            )
    for table in ("trace", "rounds", "clients", "similarity"):
        run.read(table, columns=["round"])
    if manifest.get("events_hash"):
        run.read("events", columns=["t_s"])


def _changed(run: Run) -> Iterator[str]:
    before, after = run.manifest["versions"], versions()
    for package in _MATTERS:
        if before.get(package) != after.get(package):
            yield f"{package} {before.get(package)} → {after.get(package)}"


def _compare_all(run: Run, scenario: Scenario, tolerance: float) -> Difference | None:
    from fdsim.pipeline import RunChoices, run_scenario

    with tempfile.TemporaryDirectory(prefix="fdsim-verify-") as folder:
        again = run_scenario(scenario, Path(folder) / "again", RunChoices(device=run.manifest["accelerator"]))
        return compare_runs(run, open_run(again), tolerance=tolerance)


def _compare_first_rounds(run: Run, scenario: Scenario, tolerance: float) -> tuple[int, Difference | None]:
    from fdsim.pipeline import participation_rounds
    from fdsim.prepare import prepare
    from fdsim.telemetry.callback import Callback
    from fdsim.trace import open_trace, to_table

    prepared = prepare(scenario)
    rounds = min(QUICK_ROUNDS, int(run.manifest["rounds"]))
    again = to_table(islice(participation_rounds(prepared, Callback()), rounds)).to_pandas()
    found = first_difference("trace", run.read("trace", rounds=(0, rounds - 1)), again, tolerance=tolerance)
    if found is not None:
        return rounds, found
    from fdsim.learning.engine import begin, learn
    from fdsim.prepare import make_task

    task = make_task(prepared, device=run.manifest["accelerator"])
    trace = open_trace(run.path / "trace.parquet")
    for strategy in scenario.strategies:
        results = list(islice(learn(strategy, task, trace, begin(strategy, task)), rounds))
        rows = _Rows(
            [r.row for r in results],
            [r.clients for r in results],
            [r.snapshot for r in results if r.snapshot],
        )
        found = _compare_rows(run, strategy.label, rows, tolerance)
        if found is not None:
            break
    return rounds, found


@dataclass(frozen=True)
class _Rows:
    rounds: list[RoundRow]
    clients: list[ClientRows]
    similarity: list[SimilaritySnapshot]

    def tables(self) -> Iterator[tuple[str, pa.Table]]:
        yield "rounds", rounds_table(self.rounds)
        yield "clients", clients_table(self.clients)
        yield "similarity", similarity_table(self.similarity)


def _compare_rows(run: Run, label: str, rows: _Rows, tolerance: float) -> Difference | None:
    for table, again in rows.tables():
        if table == "clients" and not run.scenario.telemetry.clients:
            continue
        recorded = run.read(table, rounds=(0, len(rows.rounds) - 1), strategy=label)
        shown = again.to_pandas().assign(strategy=label)
        if run.status not in ENDED:
            shown = _as_far_as(recorded, shown)
        found = first_difference(table, recorded, shown, tolerance=tolerance)
        if found is not None:
            return found
    return None
