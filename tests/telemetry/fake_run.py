"""A run without learning, for tests of the telemetry: its numbers depend on all earlier rounds.

As a script, `python fake_run.py FOLDER [--resume] [--rounds N] …`, it can be killed at any moment.
"""

from __future__ import annotations

import argparse
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from fdsim.files import hash_of
from fdsim.rng import stream
from fdsim.telemetry.config import Telemetry
from fdsim.telemetry.folder import RunFolder
from fdsim.telemetry.schema import (
    CLIENT_COLUMNS,
    ROUND_COLUMNS,
    WORDS,
    ClientRows,
    RoundRow,
    SimilaritySnapshot,
)
from fdsim.trace import Cause, Outcome, plain_round, write_trace


class FakeLearner:
    """A random walk with a state of every kind that a checkpoint must keep."""

    def __init__(self, clients: int, seed: int, label: str) -> None:
        self.rng = stream(seed, "fake", label)
        self.params = torch.zeros(300)
        self.scores = np.zeros((clients, clients), np.float32)
        self.next_round = 0

    def as_state(self) -> dict[str, Any]:
        return {
            "rng": self.rng.bit_generator.state,
            "params": self.params,
            "scores": self.scores,
            "sets": {3: (1, 2), 4: (5,)},
            "next_round": self.next_round,
        }

    def from_state(self, state: dict[str, Any]) -> None:
        self.rng.bit_generator.state = state["rng"]
        self.params, self.scores, self.next_round = state["params"], state["scores"], state["next_round"]

    def step(self) -> tuple[RoundRow, ClientRows, SimilaritySnapshot | None]:
        clients = len(self.scores)
        self.params = self.params + torch.from_numpy(self.rng.standard_normal(300)).float()
        self.scores += self.rng.random((clients, clients), dtype=np.float32)
        row, rows = (
            fake_row(self.next_round, float(self.params.sum())),
            fake_clients(self.next_round, clients, self.rng),
        )
        first, second = np.triu_indices(clients, 1)
        snapshot = SimilaritySnapshot(
            self.next_round, first, second, self.scores[first, second], first + 1, self.scores[first, second]
        )
        due = self.next_round % 3 == 2
        self.next_round += 1
        return row, rows, snapshot if due else None


def fake_row(round_index: int, value: float) -> RoundRow:
    """A row whose numbers all hang on `value`; every third round is not evaluated."""
    facts: dict[str, Any] = {
        c.name: value if "double" in str(c.type) else abs(int(value)) % 97 for c in ROUND_COLUMNS
    }
    facts |= {"round": round_index, "wall_s": time.perf_counter()}
    if round_index % 3 == 1:
        facts |= {"test_accuracy": None, "test_loss": None}
    return RoundRow(**facts)


def fake_clients(round_index: int, clients: int, rng: np.random.Generator) -> ClientRows:
    """Client rows like those of a run: two thirds complete, the others have a stand-in."""
    dropped = rng.random(clients) < 1 / 3
    columns: dict[str, Any] = {}
    for column in CLIENT_COLUMNS[2:]:
        if "float" in str(column.type):
            columns[column.name] = np.where(dropped, np.nan, rng.random(clients, dtype=np.float32)).astype(
                np.float32
            )
        else:
            absent = -1 if column.nullable or column.name in WORDS else 0
            columns[column.name] = np.where(dropped, rng.integers(0, min(clients, 6), clients), absent)
    columns["outcome"] = np.where(dropped, Outcome.dropped, Outcome.completed)
    columns["cause"] = np.where(dropped, rng.integers(0, len(Cause), clients), -1)
    return ClientRows(round=round_index, client=np.arange(clients), **columns)


@dataclass(frozen=True)
class FakeScenario:
    """All that a run folder asks of a scenario."""

    toml: str = 'name = "n"\nseed = 1\nrounds = 3\n'
    content_hash: str = hash_of({"name": "n", "seed": 1, "rounds": 3})
    labels: tuple[str, ...] = ("s",)
    name: str = "n"
    seed: int = 1
    rounds: int = 3

    def as_toml(self) -> str:
        return self.toml

    def as_tables(self) -> dict[str, Any]:
        return tomllib.loads(self.toml)

    @property
    def strategies(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(label=label) for label in self.labels]

    @property
    def telemetry(self) -> Telemetry:
        return Telemetry.model_validate(self.as_tables().get("telemetry", {}))


SCENARIO = 'name = "fake"\nseed = {seed}\nrounds = {rounds}\n[telemetry]\ncheckpoint_every = {every}\n'


def fake_run(
    folder: Path,
    *,
    rounds: int = 12,
    clients: int = 6,
    every: int = 4,
    resume: bool = False,
    pause_s: float = 0.0,
    seed: int = 1,
    labels: tuple[str, ...] = ("fdms", "<script>/é"),
    stop_after: int | None = None,
) -> None:
    """Write a run the way fdsim.pipeline does; `stop_after` rounds it is interrupted as by Ctrl-C."""
    text = SCENARIO.format(seed=seed, rounds=rounds, every=every)
    scenario: Any = FakeScenario(text, hash_of(tomllib.loads(text)), labels, "fake", seed, rounds)
    done = 0
    with RunFolder.resume(folder, scenario) if resume else RunFolder.create(folder, scenario) as run:
        if not run.trace_path.exists():
            rng = stream(seed, "trace")
            trace = write_trace(
                run.trace_path, (plain_round(r, rng.random(clients) < 0.7, 60.0) for r in range(rounds))
            )
            run.record_trace(trace.content_hash)
        for label in labels:
            log = run.logs[label]
            if log.finished:
                continue
            with log:
                learner = FakeLearner(clients, seed, label)
                log.restored(learner.from_state)
                while learner.next_round < rounds:
                    log.append(*learner.step())
                    if log.checkpoint_due(learner.next_round):
                        log.checkpoint(learner.as_state(), learner.next_round)
                    done += 1
                    if done == stop_after:
                        raise KeyboardInterrupt
                    time.sleep(pause_s)
                log.finish()
        run.complete()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--every", type=int, default=4)
    parser.add_argument("--pause-s", type=float, default=0.0)
    fake_run(**vars(parser.parse_args()))
