"""Friend analytics on rounds worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fdsim.learning.friends import adjusted_rand_index, clusters_in, friend_figures
from fdsim.strategies.base import MEAN, Cohort, substituted
from fdsim.strategies.dropout import Dropout
from fdsim.strategies.fdms import Fdms

CLUSTER = np.array([0, 0, 0, 1, 1, 1, 2, 2])


def cohort(active: list[int]) -> Cohort:
    everybody = np.arange(8)
    missing = np.setdiff1d(everybody, active)
    return Cohort(3, np.array(active), missing, np.full(8, 1 / 8), torch.zeros(1))


def test_a_round_by_hand() -> None:
    """0, 3 and 4 are there. 1 → 0 (hit), 2 → 3 (wrong), 5 → 4 (hit), 6 → 3, 7 → nobody (no friend of theirs is there)."""
    there = cohort([0, 3, 4])
    blend = substituted(there, np.array([0, 3, 4, 3, MEAN]), np.full(5, 0.5))
    last = np.full(8, -1)
    last[[1, 2, 5, 6]] = [0, 0, 3, 2]  # 1 kept its friend; 2 and 5 changed; the last friend of 6 is not there
    figures = friend_figures(Fdms(), there, blend, CLUSTER, last)
    assert figures.friend_present_frac == pytest.approx(3 / 5)
    assert figures.friend_hit_frac == pytest.approx(2 / 5)
    assert figures.fallback_frac == pytest.approx(1 / 5)
    assert figures.friend_stable_frac == pytest.approx(1 / 3)
    assert figures.stand_ins_max == 2
    weights = np.array([2, 3, 2]) / 8 + np.ones(3) / 24
    assert blend.weights == pytest.approx(weights)
    assert figures.effective_updates == pytest.approx(1 / (weights**2).sum())


def test_questions_that_make_no_sense_have_no_answer() -> None:
    there = cohort([0, 3, 4])
    blend = Dropout().blend({}, there)
    figures = friend_figures(Dropout(), there, blend, CLUSTER, np.full(8, -1))
    assert (
        figures.friend_hit_frac,
        figures.friend_stable_frac,
        figures.stand_ins_max,
        figures.fallback_frac,
    ) == (None,) * 4
    assert figures.friend_present_frac == pytest.approx(3 / 5)
    assert figures.effective_updates == pytest.approx(3.0)
    nobody_missing = cohort(list(range(8)))
    figures = friend_figures(
        Fdms(), nobody_missing, Dropout().blend({}, nobody_missing), None, np.full(8, -1)
    )
    assert (figures.friend_present_frac, figures.friend_hit_frac, figures.fallback_frac) == (None,) * 3


def test_the_rand_index_is_that_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    for _ in range(50):
        first, second = rng.integers(0, rng.integers(1, 6), 20), rng.integers(0, rng.integers(1, 6), 20)
        assert adjusted_rand_index(first, second) == pytest.approx(metrics.adjusted_rand_score(first, second))


def test_clusters_are_found_though_some_pairs_never_met() -> None:
    rng = np.random.default_rng(1)
    scores = np.where(CLUSTER[:, None] == CLUSTER, 0.9, 0.4) + 0.05 * rng.random((8, 8))
    scores = (scores + scores.T) / 2
    meetings = np.ones((8, 8), dtype=np.int32)
    meetings[0, 3] = meetings[3, 0] = meetings[0, 1] = meetings[1, 0] = 0
    assert adjusted_rand_index(clusters_in(scores, meetings, 3), CLUSTER) == 1.0
    assert adjusted_rand_index(clusters_in(scores[:1, :1], meetings[:1, :1], 1), CLUSTER[:1]) == 1.0
