"""What is remembered of clients' updates, at three prices."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fdsim.errors import InputError
from fdsim.kernels import updates as update_kernel
from fdsim.learning.engine import begin, learn
from fdsim.strategies import remembered
from fdsim.strategies.base import Federation
from fdsim.strategies.fdms_memory import FdmsMemory
from fdsim.strategies.remembered import (
    affordable_circles,
    affordable_form,
    blank_remembered,
    needed_gb,
    recalled_sum,
)
from tests.strategies.worlds import QuadraticTrainer, clustered_targets, random_trace, task_on


def federation(clients: int, parameters: int) -> Federation:
    weight = np.full(clients, 1 / clients)
    return Federation(clients, 10, parameters, 0, weight, None, torch.device("cpu"), torch.float32)


def test_the_form_is_the_first_that_fits() -> None:
    large = federation(10_000, 100_000)
    assert needed_gb(large, "each") == pytest.approx(4.0)
    assert needed_gb(large, "half") == pytest.approx(2.0)
    forms = [affordable_form("mine", large, "auto", limit_gb) for limit_gb in (4.0, 3.9, 1.9)]
    assert forms == ["each", "half", "circles"]
    with pytest.raises(InputError, match=r"mine.max_memory_gb: .*memory = \"circles\".*0.001 GB allowed"):
        affordable_form("mine", large, "auto", 0.001)
    with pytest.raises(InputError, match=r"fdms_memory.max_memory_gb: .*takes 4 GB.*3 GB allowed"):
        FdmsMemory(memory="each", max_memory_gb=3.0).check(large)


def test_as_many_circles_as_fit_within_bounds() -> None:
    large = federation(10_000, 100_000)  # 0.8 MB a circle
    assert [affordable_circles(large, limit_gb) for limit_gb in (0.0256, 0.1, 4.0)] == [32, 125, 256]
    assert affordable_circles(federation(20, 100_000), 4.0) == 20
    assert blank_remembered(large, "circles", 0.1)["memory"].shape == (125, 100_000)


def test_half_precision_costs_a_thousandth() -> None:
    trainer = QuadraticTrainer(clustered_targets(8, 2, 30), noise=0.3)
    ends = {}
    for memory in ("each", "half"):
        strategy = FdmsMemory(memory=memory)
        learner = begin(strategy, task_on(trainer, rounds=40, clusters=2))
        list(learn(strategy, task_on(trainer, rounds=40, clusters=2), random_trace(8, 40), learner))
        ends[memory] = learner.params
    assert learner.strategy_state["memory"].dtype == torch.bfloat16
    off = torch.linalg.vector_norm(ends["half"] - ends["each"]) / torch.linalg.vector_norm(ends["each"])
    assert 0 < float(off) < 5e-3


@pytest.mark.parametrize("at_once", [1, 12, 40, 1000])
def test_a_sum_over_few_clients_is_the_same_however_many_are_copied_at_once(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = blank_remembered(federation(50, 10), "each", 1.0)
    state["memory"].copy_(torch.randn(50, 10, generator=torch.Generator().manual_seed(0)))
    clients, factors = np.array([3, 41, 7, 3, 20]), np.array([0.5, -1.0, 2.0, 0.25, 0.0])
    monkeypatch.setattr(remembered, "_COPIED", at_once)
    found = recalled_sum(state, clients, factors, torch.zeros(10))
    assert found is not None
    expected = torch.as_tensor(factors, dtype=torch.float32) @ state["memory"][clients]
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("clusters", "clients", "limit_gb", "circles"),
    [(4, 120, 1.03e-4, 32), (50, 300, 4.0, 256)],
    ids=["few clusters, few circles", "more clusters than the fewest circles"],
)
def test_circles_are_circles_of_friends_and_hold_the_mean_of_who_came_last(
    clusters: int, clients: int, limit_gb: float, circles: int
) -> None:
    trainer = QuadraticTrainer(clustered_targets(clients, clusters, 200, spread=0.3), noise=0.3)
    task = task_on(trainer, rounds=30, clusters=clusters)
    strategy = FdmsMemory(memory="circles", friends="signatures", max_memory_gb=limit_gb)
    learner = begin(strategy, task)
    trace = random_trace(clients, 30, alpha=0.7, seed=2)
    rounds = learn(strategy, task, trace, learner)
    for _ in trace[:-1]:
        next(rounds)
    state = learner.strategy_state
    circle = state["circle"].copy()
    truth = np.arange(clients) % clusters
    pure = [
        np.bincount(truth[circle == c]).max() / (circle == c).sum() for c in np.unique(circle[circle >= 0])
    ]
    assert np.mean(pure) > 0.98
    before = learner.params.clone()
    next(rounds)
    active = trace[-1].completed
    for c in np.unique(circle[active]):
        members = active[circle[active] == c]
        mean = np.mean([trainer._update(before, int(k), 29) for k in members], axis=0)
        np.testing.assert_allclose(state["memory"][int(c)].numpy(), mean, atol=1e-12)
    assert state["memory"].shape == (circles, 200)


@pytest.mark.skipif(update_kernel.kernel() is None, reason="there is no C compiler")
@pytest.mark.parametrize("memory", ["each", "half", "circles"])
def test_the_kernel_remembers_as_torch_does(memory: str) -> None:
    ends = []
    for direct in (False, True):
        trainer = QuadraticTrainer(clustered_targets(8, 2, 30), noise=0.3, chunk=3)
        strategy = FdmsMemory(memory=memory)
        task = task_on(trainer, rounds=30, clusters=2, direct=direct, counterfactual=True)
        learner = begin(strategy, task)
        rounds = list(learn(strategy, task, random_trace(8, 30), learner))
        ends.append((learner.params, [done.row.substitution_error for done in rounds]))
    torch.testing.assert_close(ends[1][0], ends[0][0], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ends[1][1], ends[0][1], rtol=1e-7)
