"""Candidate sets: Θ_t is the theorem's, and given-up pairs are really not compared."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from fdsim.learning.engine import begin, learn
from fdsim.strategies.fdms import Fdms
from fdsim.strategies.reduction import Reduction, ThetaInputs, blank_candidates, eliminate
from fdsim.strategies.similarity import Forgetting, blank_similarity
from tests.strategies.worlds import QuadraticTrainer, clustered_targets, random_trace, task_on


def test_theta_is_the_theorems() -> None:
    figures = ThetaInputs(clients=20, rounds=300, b_max=3, delta_f=0.02)
    expected = math.sqrt((2 * math.log(2 * 400 * 300 * 3) - 2 * math.log(0.05)) / (0.25 * 40)) + 0.02
    for scale in (1.0, 0.5):
        theta = Reduction(scale=scale, p=0.05).theta(figures, np.array(0.25 * 40))
        assert float(theta) == pytest.approx(scale * expected)
    assert float(Reduction().theta(figures, np.array(0))) == math.inf


def book_of(scores: np.ndarray, meetings: int) -> dict[str, object]:
    state = blank_similarity(len(scores), "double", bounded=True, forgetting=Forgetting()) | blank_candidates(
        len(scores)
    )
    state["R"][:], state["N"][:] = scores, meetings
    np.fill_diagonal(state["N"], 0)
    return state


SCORES = np.array([[0, 0.9, 0.5, 0.1], [0.9, 0, 0.5, 0.1], [0.5, 0.5, 0, 0.8], [0.1, 0.1, 0.8, 0]])


def test_whoever_is_theta_behind_the_best_leaves_for_good() -> None:
    """K = 4, T = 10, B = 1, p = 0.1: Θ is 0.6 at 44.9 meetings."""
    surprise = 2 * math.log(2 * 16 * 10) - 2 * math.log(0.1)
    state = book_of(SCORES, 50)
    given = Reduction(p=0.1, beta=1.0, b_max=1, delta_f=0.0)
    eliminate(state, given, rounds=10, rounds_done=int(surprise / 0.6**2) + 1)
    assert 0.59 < state["theta"] < 0.6
    assert np.argwhere(~state["candidates"] & ~np.eye(4, dtype=bool)).tolist() == [
        [0, 3],
        [1, 3],
        [3, 0],
        [3, 1],
    ]
    assert state["eliminated"] == 4
    state["R"][0, 3] = state["R"][3, 0] = 0.9
    eliminate(state, given, rounds=10, rounds_done=5)
    assert not state["candidates"][0, 3]


def test_pairs_never_compared_stay_candidates() -> None:
    state = book_of(SCORES, 10**6)
    state["N"][0, 3] = 0
    eliminate(state, Reduction(), rounds=10, rounds_done=9)
    assert state["candidates"][0, 3]
    assert not state["candidates"][1, 3]


def test_estimates_are_those_of_the_largest_gaps() -> None:
    """Row 0: 0.9, 0.8 | 0.1, two friends 0.1 apart; rows 1 and 2 the same; row 3: nothing but strangers."""
    scores = np.full((4, 4), 0.1)
    scores[0, 1] = scores[1, 0] = scores[1, 2] = scores[2, 1] = 0.9
    scores[0, 2] = scores[2, 0] = 0.8
    state = book_of(scores, 1000)
    eliminate(state, Reduction(delta_f="estimate"), rounds=10, rounds_done=9)
    expected = Reduction().theta(ThetaInputs(4, 10, b_max=2, delta_f=0.1), np.array(1000))
    assert state["theta"] == pytest.approx(float(expected))
    eliminate(state, Reduction(), rounds=10, rounds_done=9)
    assert state["theta"] == pytest.approx(float(expected) - 0.1)


def test_fewer_pairs_at_the_same_friends_and_the_books_balance() -> None:
    trainer = QuadraticTrainer(clustered_targets(15, 3, 40, spread=0.3), noise=0.3)
    ends = {}
    for name, reduction in (("all", None), ("half", Reduction(scale=0.5))):
        task = task_on(trainer, rounds=150, clusters=3, evaluate_every=50)
        strategy = Fdms(reduction=reduction)
        learner = begin(strategy, task)
        ends[name] = (list(learn(strategy, task, random_trace(15, 150, alpha=0.3), learner)), learner)
    (plain, _), (reduced, learner) = ends["all"], ends["half"]
    computed = sum(r.row.pairs_computed for r in reduced)
    assert computed < 0.8 * sum(r.row.pairs_computed for r in plain)
    assert all(r.row.pairs_computed <= r.row.pairs_multiplied for r in reduced)
    assert sum(r.row.pairs_multiplied for r in reduced) < sum(r.row.pairs_multiplied for r in plain)
    assert int(np.triu(learner.strategy_state["N"], 1).sum()) == computed
    left = [r.row.candidates_frac for r in reduced]
    assert all(later <= earlier for earlier, later in pairwise(left))
    assert sum(r.row.pairs_eliminated for r in reduced) == round((1 - left[-1]) * 15 * 14)
    assert plain[-1].row.theta is None
    hits = {
        name: np.nanmean([r.row.friend_hit_frac for r in results if r.row.friend_hit_frac is not None])
        for name, (results, _) in ends.items()
    }
    assert hits["half"] == pytest.approx(hits["all"], abs=0.01)
    # Once only friends are left, products stay inside clusters.
    assert reduced[-1].row.pairs_multiplied == reduced[-1].row.pairs_computed
