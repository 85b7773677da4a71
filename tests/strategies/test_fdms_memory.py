"""Friends with memory: the twin, predicted errors, and what it promises where nothing is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fdsim.learning.engine import Learner, begin, learn
from fdsim.strategies.base import LEFT_OUT, MEAN, STORED
from fdsim.strategies.drift import blank_drift, drift_of, enter_drift
from fdsim.strategies.dropout import Dropout
from fdsim.strategies.fdms_memory import SKETCH_DIM, FdmsMemory
from fdsim.strategies.full import Full
from fdsim.strategies.mixtures import Sources, least_error_parts, spread, substitutes
from fdsim.strategies.predicted_error import age_class, blank_returns
from fdsim.strategies.steps import enter_turn, lasting
from fdsim.telemetry.schema import Substitute
from fdsim.trace import Cause, Phase, plain_round
from tests.strategies.memory_twin import MemoryTwin
from tests.strategies.worlds import (
    QuadraticTrainer,
    clustered_targets,
    random_trace,
    scripted_trace,
    task_on,
)

CLIENTS, CLUSTERS, ROUNDS = 12, 3, 120


@pytest.mark.parametrize("rule", ["least", "blend", "best"])
def test_the_twin_agrees(rule: str) -> None:
    """Clients join late, circles are away for a while, and once nobody comes."""
    trainer = QuadraticTrainer(clustered_targets(CLIENTS, CLUSTERS, 25, spread=0.5), noise=1.0, chunk=5)
    task = task_on(trainer, rounds=ROUNDS, clusters=CLUSTERS, counterfactual=True)
    rng = np.random.default_rng(1)
    who = [set(np.flatnonzero(rng.random(CLIENTS) > 0.55).tolist()) for _ in range(ROUNDS)]
    who = [present - {1, 4} if r < 9 else present for r, present in enumerate(who)]
    who = [{k for k in present if k % 3 or not 30 <= r < 50} for r, present in enumerate(who)]
    who[7] = set()
    trace = scripted_trace(*who, clients=CLIENTS)
    strategy = FdmsMemory(rule=rule, window=6, fading=0.2, evenness=3.0)
    twin = MemoryTwin(CLIENTS, rule=rule, window=6, fading=0.2, evenness=3.0)
    learner = begin(strategy, task)
    params = np.zeros(25)
    words = set()
    for trace_round, result in zip(trace, learn(strategy, task, trace, learner), strict=True):
        t, active = trace_round.round, [int(i) for i in trace_round.completed]
        true = {i: trainer._update(torch.from_numpy(params), i, t) / 0.1 for i in range(CLIENTS)}
        if active:
            step, main, expected, substitutes = twin.play(t, active, {i: true[i] for i in active}, params)
            params = params + 0.1 * step
            for k in trace_round.dropped.tolist():
                word = Substitute(result.clients.substitute[k])
                words.add(word)
                if k not in main:
                    assert word is Substitute.left_out
                    continue
                error = ((substitutes[k] - true[k]) ** 2).sum()
                assert result.clients.substitution_error[k] == pytest.approx(error, rel=1e-6)
                assert result.clients.predicted_error[k] == pytest.approx(expected[k], rel=1e-6, nan_ok=True)
                if main[k] not in ("mean", "memory"):
                    assert result.clients.stand_in[k] == main[k]
                else:
                    assert word is {"mean": Substitute.mean, "memory": Substitute.stored}[main[k]]
        np.testing.assert_allclose(learner.params.numpy(), params, rtol=0, atol=1e-6)
    assert {Substitute.client, Substitute.stored, Substitute.left_out} <= words


def test_ages_are_pooled_by_doubling() -> None:
    assert age_class(np.array([1, 2, 3, 4, 5, 8, 9, 16, 17])).tolist() == [0, 1, 2, 2, 3, 3, 4, 4, 5]


def test_where_nothing_is_known_it_is_dropout() -> None:
    """Every round is the first: nobody has been seen, so neither friends nor memory can help."""
    trainer = QuadraticTrainer(clustered_targets(8, 4, 10))
    trace = scripted_trace({1, 2, 6}, clients=8)
    task = task_on(trainer, rounds=1, clusters=4)
    ends = []
    for strategy in (FdmsMemory(), FdmsMemory(friends="signatures", memory="circles"), Dropout()):
        learner = begin(strategy, task)
        list(learn(strategy, task, trace, learner))
        ends.append(learner.params)
    torch.testing.assert_close(ends[0], ends[2], rtol=0, atol=1e-14)
    torch.testing.assert_close(ends[1], ends[2], rtol=0, atol=1e-14)


def test_the_stand_in_of_least_error_is_taken() -> None:
    """The first has a near friend and an old memory, the second a fresh memory only, the third both alike."""
    sources = Sources(
        apart=np.array([[1.0, 9.0, 9.0], [9.0, 9.0, np.nan], [9.0, 1.0, 9.0]]),
        among=np.array([[0.0, 9.0, 9.0], [9.0, 0.0, 9.0], [9.0, 9.0, 0.0]]),
        remembered=np.array([5.0, 2.0, 1.5]),
        mean=np.full(3, 1 / 3),
    )
    least = substitutes(sources, "least")
    assert least.main.tolist() == [0, STORED, 1]
    assert least.parts.tolist() == [[1, 0, 0, 0], [0, 0, 0, 1], [0, 1, 0, 0]]
    assert least.error.tolist() == [1.0, 2.0, 1.0]
    best = substitutes(sources, "best")
    assert best.main.tolist() == least.main.tolist()
    assert best.parts[:2].tolist() == least.parts[:2].tolist()  # a poor stand-in is not mixed in
    # Errors of 1 and 1.5 that have 0.45 in common: parts as 1.05 to 0.55.
    assert best.parts[2] == pytest.approx([0.0, 1.05 / 1.6, 0.0, 0.55 / 1.6])
    assert best.error[2] < least.error[2]


def test_equal_strangers_without_memory_are_averaged() -> None:
    far = 4.0 * (1 - np.eye(3))
    sources = Sources(np.full((1, 3), 4.0), far, np.array([np.nan]), np.full(3, 1 / 3))
    for rule in ("least", "best"):
        assert substitutes(sources, rule).main.tolist() == [MEAN]
        assert substitutes(sources, rule).parts[0] == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0.0])


def test_mixtures_drop_what_would_count_against() -> None:
    covariance = np.array([[[1.0, 1.8], [1.8, 4.0]], [[1.0, 0.0], [0.0, 3.0]], [[np.nan, 0.0], [0.0, 3.0]]])
    assert least_error_parts(covariance) == pytest.approx(np.array([[1.0, 0.0], [0.75, 0.25], [0.0, 1.0]]))


def test_circles_count_alike_for_the_unseen() -> None:
    """Three of one circle and one of another are known: an even mixture gives both circles half."""
    circle = np.array([0, 0, 0, 1])
    among = np.where(circle[:, None] == circle, 0.0, 10.0)
    parts, error = spread(among, np.full(4, 0.25), evenness=1e9)
    assert parts[:3].sum() == pytest.approx(0.5, abs=0.05)
    assert error < 10.0
    plain, _ = spread(among, np.full(4, 0.25), evenness=0.0)
    assert plain == pytest.approx([0.25] * 4)


@pytest.mark.parametrize(
    "keys",
    [{}, {"friends": "signatures"}, {"memory": "half"}, {"friends": "signatures", "memory": "circles"}],
    ids=["meetings", "signatures", "half", "circles"],
)
def test_a_resumed_run_is_the_same_to_the_bit(keys: dict[str, str]) -> None:
    trainer = QuadraticTrainer(clustered_targets(CLIENTS, CLUSTERS, 20), noise=0.5)
    task = task_on(trainer, rounds=30, clusters=CLUSTERS)
    trace = random_trace(CLIENTS, 30, alpha=0.5, seed=5)
    strategy = FdmsMemory(**keys)
    whole = begin(strategy, task)
    list(learn(strategy, task, trace, whole))
    half = begin(strategy, task)
    list(learn(strategy, task, trace[:13], half))
    state = {
        name: value.clone() if isinstance(value, torch.Tensor) else np.copy(value)
        for name, value in half.as_state().items()
    }
    resumed = Learner.from_state(state, parameters=task.federation.parameters)
    list(learn(strategy, task, trace, resumed))
    assert torch.equal(resumed.params, whole.params)


def test_unseen_clients_are_left_out_and_known_ones_are_not() -> None:
    trainer = QuadraticTrainer(clustered_targets(6, 2, 10))
    task = task_on(trainer, rounds=3, clusters=2)
    trace = scripted_trace({0, 1, 2}, {0, 1, 3}, {0, 3}, clients=6)
    results = list(learn(FdmsMemory(), task, trace, begin(FdmsMemory(), task)))
    left = [np.flatnonzero(r.clients.substitute == -LEFT_OUT).tolist() for r in results]
    assert left == [[3, 4, 5], [4, 5], [4, 5]]
    assert [r.row.fallback_frac for r in results] == [1.0, pytest.approx(2 / 3), 0.5]


def test_moves_that_are_alike_are_followed_and_others_are_not() -> None:
    """All alike: FedVARP's whole correction; at right angles: none of it, as Stale."""
    state = blank_returns(4) | blank_drift()
    state["returns"][0] = 3.0
    alike = {**state, "drift": np.zeros(3)}
    enter_drift(alike, np.full(3, 2.0), 9 * 2.0, fading=0.1)
    part, left = drift_of(alike, np.array([1, 9]), 3)
    assert part.tolist() == [1.0, 0.0]  # nobody has come back after nine rounds
    assert left.tolist() == [0.0, 1.0]
    enter_drift(state, np.full(3, 2.0), 3 * 2.0, fading=0.1)
    assert drift_of(state, np.array([1]), 3)[0].tolist() == [0.0]
    enter_drift(state, np.array([5.0]), 5.0, fading=0.1)
    assert state["drift"].tolist() == [0.0, 6.0, 3.0]  # a single move says nothing


def test_steps_that_take_themselves_back_do_not_last() -> None:
    state = {"lasting": np.zeros(2)}
    assert lasting(state) == 1.0  # nothing is known yet
    enter_turn(state, np.zeros(3), fading=0.5)
    assert lasting(state) == 1.0  # there was but one step
    enter_turn(state, np.array([-6.0, 4.0, 9.0]), fading=0.5)
    assert lasting(state) == -1.0
    enter_turn(state, np.array([3.0, 9.0, 1.0]), fading=0.5)
    assert lasting(state) == 0.0


class SwingingTrainer(QuadraticTrainer):
    """Every step along the first coordinate goes to the far side of the valley, a little higher up each time."""

    def _update(self, start: torch.Tensor, client: int, round_index: int) -> np.ndarray:
        update = super()._update(start, client, round_index)
        update[0] *= 20.5
        return update


def test_a_model_that_swings_is_calmed() -> None:
    """With everybody there it would swing out for ever; what is remembered of the missing steadies it."""
    targets = clustered_targets(CLIENTS, CLUSTERS, 20)
    trace = random_trace(CLIENTS, 80, alpha=0.5, seed=5)
    ends = {}
    for strategy in (Full(), FdmsMemory()):
        task = task_on(SwingingTrainer(targets, noise=0.1), rounds=80, clusters=CLUSTERS)
        learner = begin(strategy, task)
        list(learn(strategy, task, trace, learner))
        ends[strategy.kind] = abs(float(learner.params[0]) - targets[:, 0].mean())
    assert ends["full"] > 5.0
    assert ends["fdms_memory"] < 0.2


def test_circles_of_unequal_size_cost_less_than_dropout() -> None:
    """Clients join over twelve rounds; evenness takes circles to be alike, and helps where they are."""

    def error(strategy: FdmsMemory | Dropout, sizes: list[int], seed: int) -> float:
        rng = np.random.default_rng(seed)
        circle = np.repeat(np.arange(len(sizes)), sizes)
        targets = rng.normal(size=(len(sizes), 30))[circle] + 0.1 * rng.normal(size=(len(circle), 30))
        joined = rng.integers(0, 12, len(circle))[:, None] <= np.arange(15)
        there = joined & (rng.random(joined.shape) < 0.6)
        trace = [plain_round(r, there[:, r], 60.0) for r in range(15)]
        task = task_on(QuadraticTrainer(targets, noise=0.3, seed=seed), rounds=15, counterfactual=True)
        rows = [result.row for result in learn(strategy, task, trace, begin(strategy, task))]
        return sum(row.substitution_error for row in rows if row.clients_active)

    def errors(sizes: list[int]) -> list[float]:
        rivals = (FdmsMemory(), FdmsMemory(evenness=0.0), Dropout())
        return [sum(error(strategy, sizes, seed) for seed in range(4)) for strategy in rivals]

    even, plain, dropout = errors([4, 4, 4, 4, 4])
    assert even < plain < dropout
    even, plain, dropout = errors([12, 2, 2, 2, 2])
    assert plain < even < dropout  # the price of the assumption, which evenness = 0 does not pay


def test_unfinished_work_is_taken_when_asked_for() -> None:
    """Client 2 is cut off at half of its work in round 1: its update counts, and is remembered afterwards."""
    trainer = QuadraticTrainer(clustered_targets(4, 2, 10), noise=0.0)
    trace = scripted_trace({0, 1, 2, 3}, {0, 1, 3}, {0, 1, 3}, clients=4)
    trace[1].cause[2], trace[1].phase[2], trace[1].progress[2] = Cause.deadline, Phase.train, 0.5
    task = task_on(trainer, rounds=3, clusters=2, counterfactual=True)
    strict, lenient = FdmsMemory(), FdmsMemory(accept_partial=True)
    assert [r.row.clients_partial for r in learn(strict, task, trace, begin(strict, task))] == [0, 0, 0]
    learner = begin(lenient, task)
    stream = learn(lenient, task, trace, learner)
    next(stream)
    whole = trainer._update(learner.params, 2, 1) / 0.1
    second = next(stream)
    assert second.row.clients_partial == 1
    assert second.clients.weight[2] > 0
    # Half of the update is missing, and that is its error.
    assert second.clients.substitution_error[2] == pytest.approx(np.square(0.5 * whole).sum())
    third = next(stream)
    assert learner.strategy_state["stored_in"].tolist() == [2, 2, 1, 2]
    assert Substitute(third.clients.substitute[2]) in (Substitute.client, Substitute.stored, Substitute.mean)
    assert np.isfinite(third.clients.predicted_error[2])


def test_sketches_of_many_clients_tell_friends_as_whole_updates_do() -> None:
    """150 clients, half of them active: more than are compared whole by default."""
    targets = clustered_targets(150, 5, 4 * SKETCH_DIM, spread=0.5)
    ends, cluster = [], np.arange(150) % 5
    for strategy in (Full(), FdmsMemory(whole_up_to=1000), FdmsMemory()):
        task = task_on(QuadraticTrainer(targets, noise=1.0, chunk=50), rounds=8, clusters=5)
        learner = begin(strategy, task)
        list(learn(strategy, task, random_trace(150, 8), learner))
        ends.append(learner.params)
        friendship = strategy.friendship(learner.strategy_state)
        if friendship is None:
            continue
        scores, met = friendship
        nearest = np.where(met > 0, scores, -np.inf).argmax(axis=1)
        assert (cluster[nearest] == cluster).all()
    whole, sketched = (float(torch.linalg.vector_norm(end - ends[0])) for end in ends[1:])
    assert sketched == pytest.approx(whole, rel=0.05)
    assert sketched != whole
