"""What must hold for every strategy, whatever it does about the missing."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fdsim.catalogue import MENU, build
from fdsim.learning.engine import Task, begin, learn
from fdsim.learning.round import Round
from fdsim.strategies.base import Strategy
from fdsim.testing import check_strategy
from fdsim.trace import TraceRound, blank_round, plain_round
from tests.strategies.worlds import (
    QuadraticTrainer,
    clustered_targets,
    random_trace,
    scripted_trace,
    task_on,
)

CLIENTS, CLUSTERS = 10, 5
STRATEGIES: dict[str, dict[str, object]] = {kind: {"kind": kind} for kind in MENU["strategy"]} | {
    "stale models": {"kind": "stale", "of": "model"},
    "fedvarp in the cohort": {"kind": "fedvarp", "over": "cohort"},
    "fdms by distance": {"kind": "fdms", "similarity": "distance"},
    "fdms with reduction": {"kind": "fdms", "reduction": {"scale": 0.1}},
    "fdms with decay": {"kind": "fdms", "decay": 0.1},
    "fdms by signatures": {"kind": "fdms", "friends": "signatures"},
    "fdms_memory, least": {"kind": "fdms_memory", "rule": "least"},
    "fdms_memory, blend": {"kind": "fdms_memory", "rule": "blend"},
    "fdms_memory by signatures": {"kind": "fdms_memory", "friends": "signatures"},
    "fdms_memory, half": {"kind": "fdms_memory", "memory": "half"},
    "fdms_memory by circles": {"kind": "fdms_memory", "memory": "circles"},
}


@pytest.fixture(params=STRATEGIES)
def strategy(request: pytest.FixtureRequest) -> Strategy:
    found = build("strategy", STRATEGIES[request.param])
    assert isinstance(found, Strategy)
    return found


def play(strategy: Strategy, task: Task, trace: list[TraceRound]) -> tuple[torch.Tensor, list[Round]]:
    learner = begin(strategy, task)
    results = list(learn(strategy, task, trace, learner))
    return learner.params, results


def world(rounds: int, **choices: object) -> Task:
    return task_on(
        QuadraticTrainer(clustered_targets(CLIENTS, CLUSTERS, 12)),
        rounds=rounds,
        clusters=CLUSTERS,
        **choices,
    )


def test_nobody_missing_is_fedavg(strategy: Strategy) -> None:
    weight = np.arange(1.0, CLIENTS + 1)
    weight /= weight.sum()
    task = world(6, client_weight=weight)
    averaged = task.trainer.initial()
    for round_index in range(6):
        step = sum(
            torch.from_numpy(weight[chunk.clients]) @ chunk.updates
            for chunk in task.trainer.train(averaged, np.arange(CLIENTS), round_index)
        )
        averaged = averaged + step
    learnt, _ = play(strategy, task, random_trace(CLIENTS, 6, alpha=0.0))
    torch.testing.assert_close(learnt, averaged, rtol=0, atol=1e-14)


def test_everybody_missing_changes_nothing_but_is_recorded(strategy: Strategy) -> None:
    task = world(3, counterfactual=True)
    trace = scripted_trace(set(range(CLIENTS)), set(), set(), clients=CLIENTS)
    learner = begin(strategy, task)
    rounds = learn(strategy, task, trace, learner)
    next(rounds)
    before = learner.params.clone()
    results = list(rounds)
    assert [result.row.round for result in results] == [1, 2]
    assert all(result.row.clients_active == 0 for result in results)
    if strategy.trains_missing:
        assert not torch.equal(learner.params, before)
    else:
        assert torch.equal(learner.params, before)
        assert all(result.row.update_norm == 0.0 and result.row.train_loss is None for result in results)
        assert all(result.row.substitution_error > 0 for result in results)


def test_permuted_clients_give_permuted_results(strategy: Strategy) -> None:
    # The oracle deals the missing out by index, so only the order within a cluster may not change for it.
    order = np.random.default_rng(5).permutation(CLIENTS)
    if strategy.kind == "oracle_friends":
        order = np.concatenate([np.array([1, 2, 3, 4, 0]) + base for base in range(0, CLIENTS, CLUSTERS)])
    trace = random_trace(CLIENTS, 30, alpha=0.4, seed=2)
    task = world(30)
    plain, results = play(strategy, task, trace)
    trainer = QuadraticTrainer(task.trainer.targets[order])
    trainer.names = order
    moved = task_on(trainer, rounds=30, clusters=CLUSTERS)
    moved.federation.true_cluster[:] = (np.arange(CLIENTS) % CLUSTERS)[order]
    moved_trace = [plain_round(r.round, (r.outcome == 0)[order], 60.0) for r in trace]
    permuted, moved_results = play(strategy, moved, moved_trace)
    torch.testing.assert_close(permuted, plain, rtol=0, atol=1e-12)
    places = np.argsort(order)
    for here, there in zip(results, moved_results, strict=True):
        np.testing.assert_allclose(there.clients.weight, here.clients.weight[order], atol=1e-12)
        stand_in = here.clients.stand_in[order]
        assert there.clients.stand_in.tolist() == np.where(stand_in >= 0, places[stand_in], -1).tolist()


def test_the_size_of_chunks_does_not_matter(strategy: Strategy) -> None:
    ends = []
    for chunk in (1, 4, 100):
        trainer = QuadraticTrainer(clustered_targets(CLIENTS, CLUSTERS, 12), chunk=chunk)
        ends.append(
            play(strategy, task_on(trainer, rounds=15, clusters=CLUSTERS), random_trace(CLIENTS, 15))[0]
        )
    torch.testing.assert_close(ends[0], ends[1], rtol=0, atol=1e-13)
    torch.testing.assert_close(ends[0], ends[2], rtol=0, atol=1e-13)


def test_weights_and_stored_shares_make_up_one(strategy: Strategy) -> None:
    """Every client has its say: Σ weights is 1, but for what zero throws away and memories speak for."""
    _, results = play(strategy, world(12), random_trace(CLIENTS, 12))
    for result in results:
        if not result.row.clients_active:
            continue
        total = result.clients.weight.sum()
        if strategy.kind == "zero":
            assert total == pytest.approx(result.row.clients_active / CLIENTS)
        elif strategy.kind in ("stale", "fdms_memory"):
            assert total <= 1 + 1e-12
        else:
            assert total == pytest.approx(1.0)


def test_a_selected_cohort_is_repaired_within_itself(strategy: Strategy) -> None:
    """Six of ten are asked, two of them drop out; the four others never matter."""
    rng = np.random.default_rng(0)
    trace = []
    for round_index in range(20):
        made = blank_round(round_index, CLIENTS, 60.0 * round_index, 60.0 * round_index + 60)
        asked = np.sort(rng.choice(CLIENTS, 6, replace=False))
        made.outcome[asked] = 0
        made.outcome[asked[:2]] = 1
        trace.append(made)
    params, results = play(strategy, world(20, counterfactual=True), trace)
    assert torch.isfinite(params).all()
    for made, result in zip(trace, results, strict=True):
        outside = made.outcome == 2
        assert (result.clients.weight[outside] == 0).all()
        assert (result.clients.stand_in[outside] == -1).all()
        assert np.isnan(result.clients.substitution_error[outside]).all()
        assert set(result.clients.stand_in) - {-1} <= set(made.completed)
        assert (result.row.clients_selected, result.row.clients_active) == (6, 4)
        if strategy.kind not in ("zero", "stale", "fdms_memory"):
            assert result.clients.weight.sum() == pytest.approx(1.0)


def test_errors_agree_with_weights(strategy: Strategy) -> None:
    """The global update misses the true one by no more than its clients' substitutes miss theirs, each by its weight."""
    task = world(8, counterfactual=True)
    _, results = play(strategy, task, random_trace(CLIENTS, 8, seed=4))
    for result in results:
        error = result.row.substitution_error
        each = np.nan_to_num(result.clients.substitution_error)
        if error is not None:
            assert error <= (np.sqrt(each).sum() / CLIENTS) ** 2 * (1 + 1e-6) + 1e-12


def test_it_keeps_the_contract(strategy: Strategy) -> None:
    check_strategy(strategy)
