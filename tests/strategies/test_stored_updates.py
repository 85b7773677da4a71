"""Strategies that remember what clients sent: stale and fedvarp, against the formulas written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fdsim.errors import InputError
from fdsim.learning.engine import begin, learn
from fdsim.strategies.base import Federation
from fdsim.strategies.fdms import Fdms
from fdsim.strategies.fedvarp import FedVarp
from fdsim.strategies.oracle_friends import OracleFriends
from fdsim.strategies.stale import Stale
from tests.strategies.worlds import QuadraticTrainer, clustered_targets, random_trace, task_on

CLIENTS, ROUNDS = 6, 25


@pytest.mark.parametrize("of", ["update", "model"])
def test_stale_is_its_formula(of: str) -> None:
    trainer = QuadraticTrainer(clustered_targets(CLIENTS, 2, 9))
    task = task_on(trainer, rounds=ROUNDS)
    trace = random_trace(CLIENTS, ROUNDS, alpha=0.5, seed=4)[1:]  # without the round in which everybody comes
    strategy = Stale(of=of)
    learner = begin(strategy, task)
    params, memory = np.zeros(9), {}
    for trace_round, _ in zip(trace, learn(strategy, task, trace, learner), strict=True):
        active = trace_round.completed.tolist()
        if active:
            start = torch.from_numpy(params)
            updates = {k: trainer._update(start, k, trace_round.round) for k in active}
            known = dict(memory) if of == "update" else {k: model - params for k, model in memory.items()}
            known |= updates
            memory |= updates if of == "update" else {k: params + update for k, update in updates.items()}
            params = params + np.mean(list(known.values()), axis=0)
        np.testing.assert_allclose(learner.params.numpy(), params, atol=1e-12)


def test_fedvarp_is_its_formula() -> None:
    trainer = QuadraticTrainer(clustered_targets(CLIENTS, 2, 9))
    task = task_on(trainer, rounds=ROUNDS)
    trace = random_trace(CLIENTS, ROUNDS, alpha=0.5, seed=4)[1:]
    learner = begin(FedVarp(), task)
    params, memory = np.zeros(9), np.zeros((CLIENTS, 9))
    for trace_round, _ in zip(trace, learn(FedVarp(), task, trace, learner), strict=True):
        active = trace_round.completed.tolist()
        if active:
            updates = {k: trainer._update(torch.from_numpy(params), k, trace_round.round) for k in active}
            params = params + np.mean([updates[k] - memory[k] for k in active], axis=0) + memory.mean(axis=0)
            for k in active:
                memory[k] = updates[k]
        np.testing.assert_allclose(learner.params.numpy(), params, atol=1e-12)


def federation(clients: int, parameters: int, true_cluster: np.ndarray | None = None) -> Federation:
    weight = np.full(clients, 1 / clients)
    return Federation(clients, 10, parameters, 0, weight, true_cluster, torch.device("cpu"), torch.float32)


@pytest.mark.parametrize("strategy", [Stale(max_memory_gb=0.5), FedVarp(name="mine", max_memory_gb=0.5)])
def test_memories_larger_than_allowed_are_refused_before_the_run(strategy: Stale | FedVarp) -> None:
    strategy.check(federation(1000, 100_000))
    with pytest.raises(
        InputError,
        match=rf"{strategy.label}.max_memory_gb: .* 1000 clients takes 0.6 GB.*0.5 GB allowed.*fdms",
    ):
        strategy.check(federation(1000, 150_000))


def test_a_sketch_larger_than_the_model_is_refused_before_the_run() -> None:
    Fdms(sketch_dim=100).check(federation(10, 100))
    with pytest.raises(
        InputError, match=r"fdms\.sketch_dim: a sketch of 101 numbers is larger than the model of 100"
    ):
        Fdms(sketch_dim=101).check(federation(10, 100))


def test_an_oracle_without_clusters_is_refused_before_the_run() -> None:
    OracleFriends().check(federation(4, 10, np.array([0, 0, 1, 1])))
    with pytest.raises(InputError, match=r"oracle_friends: the oracle needs true clusters.*clustered"):
        OracleFriends().check(federation(4, 10))


def test_begin_asks_the_strategy_first() -> None:
    trainer = QuadraticTrainer(clustered_targets(4, 2, 10))
    with pytest.raises(InputError, match="true clusters"):
        begin(OracleFriends(), task_on(trainer, rounds=5))
    assert trainer.trained == []


def test_the_oracle_deals_the_missing_out_evenly() -> None:
    """Clusters by k mod 2. 1, 3 and 5 are missing friends of 7 and 9; nobody is there for 0, 2, 4, 6, 8."""
    trainer = QuadraticTrainer(clustered_targets(10, 2, 5))
    task = task_on(trainer, rounds=1, clusters=2)
    trace = random_trace(10, 1)
    trace[0].outcome[[k for k in range(10) if k not in (7, 9)]] = 1
    (result,) = learn(OracleFriends(), task, trace, begin(OracleFriends(), task))
    assert result.clients.stand_in.tolist() == [-1, 7, -1, 9, -1, 7, -1, -1, -1, -1]
    assert result.row.friend_present_frac == result.row.friend_hit_frac == pytest.approx(3 / 8)
    assert result.row.fallback_frac == pytest.approx(5 / 8)
    assert result.clients.weight[[7, 9]].tolist() == pytest.approx([0.3 + 0.25, 0.2 + 0.25])
