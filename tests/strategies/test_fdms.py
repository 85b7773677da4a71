"""Friend discovery and model substitution, rule by rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from fdsim.learning.engine import begin, learn
from fdsim.strategies.base import MEAN, Cohort, Federation, Feedback, State
from fdsim.strategies.fdms import Fdms
from fdsim.strategies.similarity import Forgetting, blank_similarity, decoded, record_scores
from tests.strategies.worlds import QuadraticTrainer, clustered_targets, random_trace, scripted_trace, task_on


def federation(clients: int, parameters: int = 10) -> Federation:
    weight = np.full(clients, 1 / clients)
    return Federation(clients, 50, parameters, 0, weight, None, torch.device("cpu"), torch.float64)


def cohort(active: list[int], clients: int, round_index: int = 1) -> Cohort:
    missing = np.setdiff1d(np.arange(clients), active)
    return Cohort(round_index, np.array(active), missing, np.full(clients, 1 / clients), torch.zeros(10))


def state_with(strategy: Fdms, clients: int, scores: dict[tuple[int, int], float]) -> State:
    state = strategy.start(federation(clients))
    for (i, j), score in scores.items():
        for pair in ((i, j), (j, i)):
            state["R"][pair], state["N"][pair] = score, 1
    return state


def test_equal_scores_go_to_the_lowest_index() -> None:
    state = state_with(Fdms(), 5, {(0, 2): 0.7, (0, 3): 0.7, (0, 4): 0.6})
    blend = Fdms().blend(state, cohort([2, 3, 4], 5))
    assert blend.stand_in.tolist() == [2, MEAN]
    assert blend.weights.tolist() == pytest.approx([0.4 + 0.2 / 3, 0.2 + 0.2 / 3, 0.2 + 0.2 / 3])


def test_without_any_score_dropouts_rule_is_used_and_recorded() -> None:
    """Nobody has met client 2 before round 1; in round 2 client 0 has."""
    trainer = QuadraticTrainer(clustered_targets(3, 1, 8))
    task = task_on(trainer, rounds=3, clusters=1)
    trace = scripted_trace({0, 1}, {0, 1}, {0}, clients=3)
    results = list(learn(Fdms(), task, trace, begin(Fdms(), task)))
    assert results[1].clients.stand_in.tolist() == [-1, -1, -1]
    assert results[1].row.fallback_frac == 1.0
    assert results[1].clients.weight.tolist() == pytest.approx([0.5, 0.5, 0.0])
    assert results[2].clients.stand_in.tolist() == [-1, 0, -1]
    assert results[2].row.fallback_frac == 0.5
    assert results[2].clients.weight.tolist() == pytest.approx([1.0, 0.0, 0.0])


def test_a_score_below_the_least_leaves_the_client_to_dropout() -> None:
    scores = {(0, 2): 0.7, (1, 2): 0.9}
    picky = Fdms(min_similarity=0.8)
    blend = picky.blend(state_with(picky, 3, scores), cohort([2], 3))
    assert blend.stand_in.tolist() == [MEAN, 2]
    assert np.isnan(blend.similarity[0])
    assert Fdms().blend(state_with(Fdms(), 3, scores), cohort([2], 3)).stand_in.tolist() == [2, 2]


def test_shares_travel_with_the_clients_they_belong_to() -> None:
    """A missing client's weight goes to its friend, whatever the friend's own."""
    strategy = Fdms()
    state = state_with(strategy, 3, {(0, 2): 0.9, (0, 1): 0.1})
    there = Cohort(1, np.array([1, 2]), np.array([0]), np.array([0.5, 0.3, 0.2]), torch.zeros(10))
    assert strategy.blend(state, there).weights.tolist() == pytest.approx([0.3, 0.7])


def scores_of(value: float) -> np.ndarray:
    return np.array([[np.nan, value], [value, np.nan]])


def remembered(values: list[tuple[int, float]], forgetting: Forgetting, precision: Any = "double") -> State:
    state = blank_similarity(2, precision, bounded=True, forgetting=forgetting)
    for round_index, value in values:
        record_scores(state, np.array([0, 1]), scores_of(value), forgetting, round_index=round_index)
    return state


def test_a_plain_mean_forgets_nothing() -> None:
    state = remembered([(0, 0.2), (5, 0.4), (6, 0.9)], Forgetting())
    assert state["R"][0, 1] == state["R"][1, 0] == pytest.approx(0.5)
    assert state["N"].tolist() == [[0, 3], [3, 0]]


def test_a_window_lets_old_meetings_fade() -> None:
    """Window 2: the mean of the first two, then each new one weighs a half."""
    state = remembered([(0, 0.2), (1, 0.4), (2, 0.9), (3, 0.1)], Forgetting(window=2))
    assert state["R"][0, 1] == pytest.approx(((0.3 + 0.9) / 2 + 0.1) / 2)
    assert state["N"][0, 1] == 4


def test_decay_counts_rounds_not_meetings() -> None:
    """Half of the weight goes with each round: a score five rounds old weighs 1/32 of a new one."""
    state = remembered([(0, 0.2), (5, 0.8)], Forgetting(decay=0.5))
    assert state["R"][0, 1] == pytest.approx((0.2 / 32 + 0.8) / (1 + 1 / 32))


def test_forgetting_finds_the_new_friend_after_a_drift() -> None:
    """Client 0 is like 1 for 60 rounds, then like 2; a plain mean still trusts 1 after 20 more."""
    ends = {}
    for name, strategy in (("plain", Fdms()), ("window", Fdms(window=5)), ("decay", Fdms(decay=0.2))):
        state = strategy.start(federation(3))
        for round_index in range(80):
            old, new = (0.9, 0.3) if round_index < 60 else (0.3, 0.9)
            scores = np.array([[np.nan, old, new], [old, np.nan, 0.3], [new, 0.3, np.nan]])
            state = strategy.after_round(state, cohort([0, 1, 2], 3, round_index), Feedback(scores))
        ends[name] = strategy.blend(state, cohort([1, 2], 3)).stand_in.tolist()
    assert ends == {"plain": [1], "window": [2], "decay": [2]}


def test_half_precision_stays_within_its_bound() -> None:
    rng = np.random.default_rng(0)
    values = list(enumerate(rng.uniform(0.3, 1.0, 500)))
    for count in (1, 10, 500):
        exact, half = (
            remembered(values[:count], Forgetting(), precision) for precision in ("double", "half")
        )
        assert half["R"].dtype == half["N"].dtype == np.uint16
        error = abs(decoded(half["R"])[0, 1] - exact["R"][0, 1])
        assert error <= (count + 1) / 2 * 2.0**-17 + 1e-12


def test_meetings_beyond_what_two_bytes_hold_stop_counting() -> None:
    state = remembered([(0, 0.5)], Forgetting(), "half")
    state["N"][0, 1] = state["N"][1, 0] = 65535
    record_scores(state, np.array([0, 1]), scores_of(0.5), Forgetting(), round_index=1)
    assert state["N"][0, 1] == 65535


def test_precision_follows_the_number_of_clients() -> None:
    for clients, similarity, kind in (
        (50, "cosine", np.float64),
        (3001, "cosine", np.uint16),
        (3001, "distance", np.float32),
    ):
        assert Fdms(similarity=similarity).start(federation(clients))["R"].dtype == kind


def test_half_precision_and_sketches_find_the_same_friends() -> None:
    trainer = QuadraticTrainer(clustered_targets(12, 3, 400), noise=0.5)
    found = {}
    for name, strategy in (
        ("plain", Fdms()),
        ("half", Fdms(precision="half")),
        ("sketch", Fdms(sketch_dim=128)),
    ):
        task = task_on(trainer, rounds=40, clusters=3)
        results = list(learn(strategy, task, random_trace(12, 40, alpha=0.3), begin(strategy, task)))
        found[name] = np.mean([r.row.friend_hit_frac for r in results if r.row.friend_hit_frac is not None])
        assert results[-1].row.cluster_agreement == 1.0
    assert found["half"] == found["plain"]
    assert found["sketch"] == pytest.approx(found["plain"], abs=0.02)


@pytest.mark.parametrize(
    ("keys", "place"),
    [
        ({"reduction": {"p": 0.0}}, "reduction.p"),
        ({"reduction": {"p": 1.0}}, "reduction.p"),
        ({"reduction": {"beta": 0.0}}, "reduction.beta"),
        ({"reduction": {"beta": -0.1}}, "reduction.beta"),
        ({"reduction": {"scale": 0.0}}, "reduction.scale"),
        ({"reduction": {"delta_f": -1.0}}, "reduction.delta_f"),
        ({"reduction": {"b_max": 0}}, "reduction.b_max"),
        ({"similarity": "euclid"}, "similarity"),
        ({"window": 0}, "window"),
        ({"decay": 1.0}, "decay"),
        ({"sketch_dim": 0}, "sketch_dim"),
        ({"window": 3, "decay": 0.1}, ""),
    ],
)
def test_settings_that_make_no_sense_are_refused_when_read(keys: dict[str, Any], place: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Fdms(**keys)
    assert ".".join(str(part) for part in caught.value.errors()[0]["loc"]).startswith(place)
