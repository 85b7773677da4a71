"""What the report is drawn from: a run's tables, gathered once and in the shapes the figures need."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fdsim.errors import RunFolderError
from fdsim.report.colours import strategy_looks
from fdsim.trace import Outcome, Trace, open_trace

if TYPE_CHECKING:
    import pandas as pd

    from fdsim.telemetry.reader import Run


@dataclass(frozen=True)
class Presence:
    """Who was there: codes of fdsim.trace as [T, K], and when the rounds were, s."""

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
    def asked(self) -> np.ndarray:
        """[T, K] whether a client was asked to take part."""
        return np.asarray(self.outcome != Outcome.not_selected)

    @cached_property
    def completed(self) -> np.ndarray:
        """[T, K] whether a client's update arrived."""
        return np.asarray(self.outcome == Outcome.completed)

    @cached_property
    def availability(self) -> np.ndarray:
        """[K] share of the rounds a client was asked in that its update arrived; 0 where it never was asked."""
        return np.asarray(self.completed.sum(axis=0) / np.maximum(1, self.asked.sum(axis=0)))


@dataclass(frozen=True)
class RunData:
    """One run, ready to be drawn."""

    run: Run
    tables: dict[str, Any]
    """scenario.toml as it stands, so that kinds of the user's own need not be importable."""
    rounds: pd.DataFrame
    trace: Trace | None
    presence: Presence | None
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
        return device_names(self.tables, self.presence.clients if self.presence is not None else 0)

    def of(self, strategy: str) -> pd.DataFrame:
        """The rounds of one strategy, in order."""
        rows = self.rounds[self.rounds["strategy"] == strategy]
        return rows.sort_values("round")

    def has(self, column: str) -> bool:
        """Whether the rounds table has the column, with anything in it."""
        return column in self.rounds and bool(self.rounds[column].notna().any())


def gather(folder: Path) -> RunData:
    """Open a run folder, finished or not, and read what every section needs."""
    import fdsim

    run = fdsim.open_run(folder)
    path = folder / "scenario.toml"
    try:
        text = path.read_text(encoding="utf-8")
        tables = tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise RunFolderError(str(path), f"the file is damaged ({error})", "restore it from a copy") from None
    trace = open_trace(folder / "trace.parquet") if (folder / "trace.parquet").is_file() else None
    return RunData(
        run=run,
        tables=tables,
        rounds=run.rounds,
        trace=trace,
        presence=None if trace is None else read_presence(trace),
        looks=strategy_looks(run.strategies, strategy_kinds(tables, run.strategies)),
    )


def strategy_kinds(tables: dict[str, Any], labels: list[str]) -> list[str]:
    """Find the kind behind each strategy's label; the label itself where the scenario does not say."""
    kinds = {}
    for table in tables.get("strategies", []):
        kind = str(table.get("kind", ""))
        kinds[str(table.get("name") or kind.rsplit(":", 1)[-1])] = kind
    return [kinds.get(label, label) for label in labels]


def read_presence(trace: Trace) -> Presence:
    """Read who was there from a trace, one row group at a time."""
    outcome = np.empty((trace.rounds, trace.clients), dtype=np.int8)
    cause = np.empty_like(outcome)
    start_s, end_s = np.empty(trace.rounds), np.empty(trace.rounds)
    for index, trace_round in enumerate(trace):
        outcome[index], cause[index] = trace_round.outcome, trace_round.cause
        start_s[index], end_s[index] = trace_round.round_start_s, trace_round.round_end_s
    return Presence(outcome, cause, start_s, end_s)


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
