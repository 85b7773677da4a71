"""Estimate what a study will take: disk space from the size of its tables, time from a few timed rounds."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from fdsim.distributed.cluster import worker_environment
from fdsim.prepare import Prepared, prepare
from fdsim.scenario import Scenario, hash_of
from fdsim.studies.plan import Trial
from fdsim.trace import TraceRound

if TYPE_CHECKING:
    from fdsim.learning.engine import Task

#: Bytes of zstd Parquet, as measured on finished runs: a file's own overhead, and what a row adds.
_ROUNDS_FILE, _ROUND_ROW = 12_000, 60
_CLIENTS_FILE, _CLIENT_ROW = 6_000, 7
_TRACE_FILE, _TRACE_ROW = 15_000, 30
_SIMILARITY_FILE, _PAIR_ROW = 10_000, 11
_RUN_FILES = 6_000

#: How many different kinds of trial are timed; others are scaled by their FLOPs.
_TIMED_KINDS = 4
_TIMED_ROUNDS = 5


@dataclass(frozen=True)
class Estimate:
    """Time and disk space of one trial."""

    seconds: float
    disk_bytes: int


def disk_bytes(trial: Trial) -> int:
    """Return the size of a trial's finished run folder; its trace is shared and counted once per study."""
    scenario = trial.scenario
    rows = scenario.rounds * scenario.clients
    snapshots = (
        scenario.rounds // scenario.telemetry.similarity_every if scenario.telemetry.similarity_every else 0
    )
    total = _RUN_FILES
    for strategy in scenario.strategies:
        total += _ROUNDS_FILE + _ROUND_ROW * scenario.rounds
        if scenario.telemetry.clients:
            total += _CLIENTS_FILE + _CLIENT_ROW * rows
        if strategy.compares and snapshots:
            total += _SIMILARITY_FILE + _PAIR_ROW * snapshots * scenario.clients * (scenario.clients - 1) // 2
    return total


def trace_bytes(trial: Trial) -> int:
    """Return the size of a trial's trace."""
    return _TRACE_FILE + _TRACE_ROW * trial.scenario.rounds * trial.scenario.clients


def estimate(trials: Sequence[Trial], *, threads: int, device: str | None = None) -> dict[str, Estimate]:
    """Estimate every trial by timing a round of some of them, which takes seconds."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        timed: dict[str, float] = {}
        seconds_per_flop = 0.0
        found: dict[str, Estimate] = {}
        for trial in sorted(trials, key=lambda c: -c.work):
            kind = _kind(trial.scenario)
            if kind not in timed and len(timed) < _TIMED_KINDS:
                prepared = prepare(trial.scenario)
                timed[kind] = _seconds(prepared, device)
                seconds_per_flop = max(seconds_per_flop, timed[kind] / max(1.0, _flops(prepared)))
        for trial in trials:
            known = timed.get(_kind(trial.scenario))
            seconds = known if known is not None else seconds_per_flop * _flops(prepare(trial.scenario))
            found[trial.id] = Estimate(seconds, disk_bytes(trial))
        return found
    finally:
        torch.set_num_threads(before)


def start_s() -> float:
    """Return how long a worker takes to start here, by starting a process that imports what a worker imports."""
    command = [sys.executable, "-P", "-c", "import torch, fdsim.pipeline, fdsim.learning.engine"]
    return _timed(lambda: subprocess.run(command, env=worker_environment(threads=1), check=True))


def _kind(scenario: Scenario) -> str:
    """Return what trials of equal cost have in common: all but the seed."""
    return hash_of({**scenario.as_tables(), "seed": 0})


def _flops(prepared: Prepared) -> float:
    scenario = prepared.scenario
    return float(prepared.workload.train_flops.sum()) * scenario.rounds * len(scenario.strategies)


def _seconds(prepared: Prepared, device: str | None) -> float:
    """Time a few rounds of the fleet, and one round of training for each strategy."""
    from fdsim.pipeline import participation_rounds
    from fdsim.prepare import make_task
    from fdsim.telemetry.callback import Callback

    rounds = prepared.scenario.rounds
    began_s = time.perf_counter()
    trace = list(islice(participation_rounds(prepared, Callback()), _TIMED_ROUNDS))
    fleet_s = (time.perf_counter() - began_s) / max(1, len(trace)) * rounds
    return fleet_s + learning_s(make_task(prepared, device=device), prepared.scenario, trace)


def learning_s(task: Task, scenario: Scenario, trace: Sequence[TraceRound]) -> float:
    """Return the time that learning will take on this machine, from one timed round of each kind.

    `trace` holds some rounds of the scenario, to know how many clients are typically active.
    """
    trainer = task.trainer
    params = trainer.initial()
    trainer.evaluate(params)
    evaluate_s = _timed(lambda: trainer.evaluate(params))
    typical = sorted((r.completed for r in trace), key=len)[len(trace) // 2]
    round_s: dict[bool, float] = {}
    for trains_all, clients in ((True, np.arange(scenario.clients)), (False, typical)):
        if len(clients):

            def one_round(clients: np.ndarray = clients) -> None:
                for chunk in trainer.train(params, clients, 0):
                    chunk.losses.cpu()

            one_round()
            round_s[trains_all] = _timed(one_round)
    seconds = 0.0
    for strategy in scenario.strategies:
        trains_all = strategy.trains_missing or scenario.telemetry.counterfactual
        seconds += scenario.rounds * (
            round_s.get(trains_all, 0.0) + evaluate_s / scenario.telemetry.evaluate_every
        )
    return seconds


def _timed(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s
