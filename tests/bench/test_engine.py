"""The engine benchmark measures what it says."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

from fdsim.bench import engine as bench
from fdsim.learning.config.acceleration import Acceleration
from fdsim.learning.config.training import Training
from fdsim.learning.nets.library import Mlp
from fdsim.learning.torch_threads import torch_threads

SMALL = bench.EngineWorkload(
    "small", Mlp(hidden=(3,)), (1, 4, 4), 4, 6, Training(local_epochs=2, batch_size=3), 0.0
)


def test_a_workload_is_timed():
    timing = bench.time_workload(SMALL, Acceleration(device="cpu"), repeats=1, plain_frac=0.5)
    assert timing.plain_s > 0
    assert timing.ratio == pytest.approx(timing.plain_s / timing.engine_s)
    assert timing.plan.startswith("stacked")
    assert timing.convolutions == "torch"


def test_the_plain_loop_gets_the_better_number_of_threads(monkeypatch):
    """All threads are slow at the first try, which is not repeated: one thread counts, and is all that peers get."""
    tries: list[int] = []

    class Plain:
        def __init__(self, *given, **named) -> None:
            pass

        def run(self) -> None:
            tries.append(torch.get_num_threads())
            time.sleep(0.002 if torch.get_num_threads() == 1 else 0.2)

    monkeypatch.setattr(bench, "PlainLoop", Plain)
    with torch_threads(2):
        timing = bench.time_workload(SMALL, Acceleration(device="cpu"), repeats=2, plain_frac=1.0)
        assert torch.get_num_threads() == 2
    assert tries == [1, 1, 2, 1]  # the first of them warms up
    assert timing.plain_threads == 1
    assert timing.threads == (1,)
    assert timing.plain_s < 0.2


def test_operations_are_counted_by_hand():
    """Forward 2·(16·3 + 3·10); backward the same for weights and, but for the first layer, for inputs; 48 samples."""
    assert bench.counted_flops(SMALL) == 48 * 2 * (2 * 16 * 3 + 3 * 3 * 10)


def test_both_sides_train_the_same_batches():
    engine, plain = (
        bench.engine_for(SMALL, Acceleration(device="cpu")),
        bench.PlainLoop(SMALL, torch.device("cpu"), clients=4),
    )
    take = {"round_index": 0, "batch_size": 3}
    a, b = (s.take(np.arange(4), np.full(4, 4), **take) for s in (engine._stream, plain.stream))
    assert np.array_equal(a.rows, b.rows)


@pytest.mark.benchmark
@pytest.mark.parametrize("workload", bench.WORKLOADS, ids=lambda workload: workload.name)
def test_the_bars(workload):
    timing = bench.time_workload(workload, Acceleration(device="cpu"), repeats=3, plain_frac=0.2)
    print(
        f"{workload.name}: {timing.ratio:.2f} times the plain loop (bar {workload.bar}), {timing.gflops:.1f} GFLOP/s"
    )
    assert timing.ratio >= workload.bar
