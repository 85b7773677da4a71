"""The data of a report: a run's tables, read once, in the shapes that the figures need."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fdsim.files import hash_of
from fdsim.report.colours import strategy_looks
from fdsim.telemetry.manifest import Manifest
from fdsim.telemetry.scenario_keys import read_tables
from fdsim.trace import Outcome, Trace, open_trace

if TYPE_CHECKING:
    import pandas as pd

    from fdsim.telemetry.reader import Run


@dataclass(frozen=True)
class Outcomes:
    """The outcome of each client in each round, codes of fdsim.trace as [T, K], and the times of the rounds, s."""

    outcome: np.ndarray
    cause: np.ndarray
    round_start_s: np.ndarray
    round_end_s: np.ndarray

    @property
    def rounds(self) -> int:
        """The number of rounds T."""
        return len(self.outcome)

    @property
    def clients(self) -> int:
        """The number of clients K."""
        return int(self.outcome.shape[1])

    @cached_property
    def selected(self) -> np.ndarray:
        """[T, K] whether a client was selected."""
        return np.asarray(self.outcome != Outcome.not_selected)

    @cached_property
    def completed(self) -> np.ndarray:
        """[T, K] whether a client completed."""
        return np.asarray(self.outcome == Outcome.completed)

    @cached_property
    def completion_frac(self) -> np.ndarray:
        """[K] fraction of the rounds a client was selected for that it completed; 0 if never selected."""
        return np.asarray(self.completed.sum(axis=0) / np.maximum(1, self.selected.sum(axis=0)))


@dataclass(frozen=True)
class RunData:
    """One run, ready to be drawn."""

    run: Run
    tables: dict[str, Any]
    """scenario.toml as it is, so that user-defined kinds need not be importable."""
    rounds: pd.DataFrame
    trace: Trace | None
    outcomes: Outcomes | None
    looks: dict[str, tuple[str, str]]
    """strategy → (colour token, dash)."""

    @property
    def name(self) -> str:
        """The scenario's name."""
        return str(self.tables.get("name", self.run.path.name))

    @property
    def strategies(self) -> list[str]:
        """The strategies' labels, in the scenario's order."""
        return self.run.strategies

    @property
    def true_cluster(self) -> np.ndarray | None:
        """[K] the cluster of each client's data, where there are clusters."""
        return self.trace.true_cluster if self.trace is not None else None

    @cached_property
    def devices(self) -> list[str]:
        """[K] the name of each client's fleet group."""
        return device_names(self.tables, self.outcomes.clients if self.outcomes is not None else 0)

    def of(self, strategy: str) -> pd.DataFrame:
        """Return the rounds of one strategy, in order."""
        rows = self.rounds[self.rounds["strategy"] == strategy]
        return rows.sort_values("round")

    def has(self, column: str) -> bool:
        """Tell whether the rounds table has the column, with anything in it."""
        return column in self.rounds and bool(self.rounds[column].notna().any())


def gather(folder: Path) -> RunData:
    """Open a run folder, finished or not, and read what every section needs."""
    import fdsim

    run = fdsim.open_run(folder)
    tables = scenario_tables(folder)
    trace = open_trace(folder / "trace.parquet") if (folder / "trace.parquet").is_file() else None
    return RunData(
        run=run,
        tables=tables,
        rounds=run.rounds,
        trace=trace,
        outcomes=None if trace is None else read_outcomes(trace),
        looks=strategy_looks(run.strategies, strategy_kinds(tables, run.strategies)),
    )


def scenario_tables(folder: Path) -> dict[str, Any]:
    """Read a run's scenario.toml without importing what it names; an edited one says nothing about the run."""
    tables = read_tables(folder)
    return tables if hash_of(tables) == Manifest.read(folder)["scenario_hash"] else {}


def strategy_kinds(tables: dict[str, Any], labels: list[str]) -> list[str]:
    """Find the kind behind each strategy's label; the label itself where the scenario does not say."""
    kinds = {}
    for table in tables.get("strategies", []):
        kind = str(table.get("kind", ""))
        kinds[str(table.get("name") or kind.rsplit(":", 1)[-1])] = kind
    return [kinds.get(label, label) for label in labels]


def read_outcomes(trace: Trace) -> Outcomes:
    """Read outcomes and causes from a trace, one row group at a time."""
    outcome = np.empty((trace.rounds, trace.clients), dtype=np.int8)
    cause = np.empty_like(outcome)
    start_s, end_s = np.empty(trace.rounds), np.empty(trace.rounds)
    for index, trace_round in enumerate(trace):
        outcome[index], cause[index] = trace_round.outcome, trace_round.cause
        start_s[index], end_s[index] = trace_round.round_start_s, trace_round.round_end_s
    return Outcomes(outcome, cause, start_s, end_s)


def device_names(tables: dict[str, Any], clients: int) -> list[str]:
    """Name each client's device by its fleet group; groups of one profile are told apart by number."""
    groups = tables.get("fleet", [])
    profiles = [str(group.get("profile", "device")) for group in groups]
    names: list[str] = []
    for index, (group, profile) in enumerate(zip(groups, profiles, strict=True)):
        name = profile if profiles.count(profile) == 1 else f"{profile}, group {index + 1}"
        names.extend([name] * int(group.get("count", 0)))
    if len(names) != clients:
        kind = str(tables.get("participation", {}).get("kind", "no device"))
        return [kind] * clients
    return names
