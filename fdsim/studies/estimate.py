"""What a study is going to take: disk from the size of its tables, time from a few rounds tried here."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from fdsim.prepare import Prepared, prepare
from fdsim.scenario import Scenario, hash_of
from fdsim.studies.plan import Cell
from fdsim.trace import TraceRound

#: Bytes of zstd Parquet, as measured on finished runs: a file's own overhead, and what a row adds.
_ROUNDS_FILE, _ROUND_ROW = 12_000, 60
_CLIENTS_FILE, _CLIENT_ROW = 6_000, 7
_TRACE_FILE, _TRACE_ROW = 15_000, 30
_SIMILARITY_FILE, _PAIR_ROW = 10_000, 11
_RUN_FILES = 6_000

#: How many different kinds of cell are tried; others are scaled by their arithmetic.
_TRIED_KINDS = 4
_TRIED_ROUNDS = 5


@dataclass(frozen=True)
class Estimate:
    """What one cell takes."""

    seconds: float
    disk_bytes: int


def disk_bytes(cell: Cell) -> int:
    """Bytes of a cell's finished run folder; its trace is shared and counted once per study."""
    scenario = cell.scenario
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


def trace_bytes(cell: Cell) -> int:
    """Bytes of a trace."""
    return _TRACE_FILE + _TRACE_ROW * cell.scenario.rounds * cell.scenario.clients


def estimate(cells: Sequence[Cell], *, threads: int, device: str | None = None) -> dict[str, Estimate]:
    """Estimate every cell by trying a round of some of them, which takes seconds."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        tried: dict[str, float] = {}
        seconds_per_flop = 0.0
        found: dict[str, Estimate] = {}
        for cell in sorted(cells, key=lambda c: -c.work):
            kind = _kind(cell.scenario)
            if kind not in tried and len(tried) < _TRIED_KINDS:
                prepared = prepare(cell.scenario)
                tried[kind] = _seconds(prepared, device)
                seconds_per_flop = max(seconds_per_flop, tried[kind] / max(1.0, _flops(prepared)))
        for cell in cells:
            known = tried.get(_kind(cell.scenario))
            seconds = known if known is not None else seconds_per_flop * _flops(prepare(cell.scenario))
            found[cell.id] = Estimate(seconds, disk_bytes(cell))
        return found
    finally:
        torch.set_num_threads(before)


def _kind(scenario: Scenario) -> str:
    """Cells that differ in nothing but luck take alike: the seed does not count."""
    return hash_of({**scenario.as_tables(), "seed": 0})


def _flops(prepared: Prepared) -> float:
    scenario = prepared.scenario
    return float(prepared.workload.train_flops.sum()) * scenario.rounds * len(scenario.strategies)


def _seconds(prepared: Prepared, device: str | None) -> float:
    """Time the fleet for a few rounds, and one round of training as each strategy would have it."""
    from fdsim.prepare import make_task
    from fdsim.progress import Silent
    from fdsim.run import participation_rounds

    scenario = prepared.scenario
    began_s = time.perf_counter()
    trace = list(islice(participation_rounds(prepared, Silent()), _TRIED_ROUNDS))
    seconds = (time.perf_counter() - began_s) / max(1, len(trace)) * scenario.rounds
    task = make_task(prepared, device=device)
    params = task.trainer.initial()
    everybody, typical = np.arange(scenario.clients), _typical(trace)
    task.trainer.evaluate(params)
    evaluate_s = _timed(lambda: task.trainer.evaluate(params))
    took: dict[bool, float] = {}
    for all_of_them, clients in ((True, everybody), (False, typical)):
        if len(clients):

            def one_round(clients: np.ndarray = clients) -> None:
                for chunk in task.trainer.train(params, clients, 0):
                    chunk.losses.cpu()

            one_round()
            took[all_of_them] = _timed(one_round)
    for strategy in scenario.strategies:
        trains_all = strategy.trains_missing or scenario.telemetry.counterfactual
        seconds += scenario.rounds * (
            took.get(trains_all, 0.0) + evaluate_s / scenario.telemetry.evaluate_every
        )
    return seconds


def _typical(trace: Sequence[TraceRound]) -> np.ndarray:
    return sorted((r.completed for r in trace), key=len)[len(trace) // 2]


def _timed(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s
