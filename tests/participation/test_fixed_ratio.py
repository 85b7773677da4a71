"""The paper's process draws uniformly among all ways to split the active clients over the clusters."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest

from fdsim.participation.base import ParticipationSetting
from fdsim.participation.fixed_ratio import FixedRatio, Splits
from fdsim.rng import stream


def test_every_split_is_equally_likely() -> None:
    every = [split for split in product(range(1, 5), repeat=3) if sum(split) == 6]
    rng, draws = stream(1, "splits"), 10_000
    splits = Splits([4, 4, 4], 6)
    counts = Counter(tuple(splits.draw(rng)) for _ in range(draws))
    assert set(counts) == set(every)
    expected = draws / len(every)
    chi2 = sum((counts[split] - expected) ** 2 / expected for split in every)
    # 9 degrees of freedom: above 27.9 once in a thousand.
    assert chi2 < 27.9


def test_extreme_totals_and_many_clusters_are_no_trouble() -> None:
    rng = stream(2, "splits")
    assert Splits([4] * 5, 5).draw(rng) == [1] * 5
    assert Splits([4] * 5, 20).draw(rng) == [4] * 5
    many = Splits([20] * 500, 5000).draw(rng)
    assert sum(many) == 5000
    assert min(many) >= 1
    assert max(many) <= 20


def test_rounds_have_exactly_the_share_and_every_cluster() -> None:
    cluster = np.repeat(np.arange(5), 4)
    setting = ParticipationSetting(rounds=50, seed=3, round_interval_s=60.0, true_cluster=cluster)
    first, *rest = FixedRatio(clients=20, alpha=0.7).rounds(setting)
    assert len(first.completed) == 20
    for trace_round in rest:
        assert len(trace_round.completed) == 6
        assert set(cluster[trace_round.completed]) == set(range(5))


def test_rounds_are_most_lopsided_when_half_are_missing() -> None:
    """How far the clusters' shares are from a fifth each, which is what Dropout errs by, does not grow with α.

    The mean squared distance over all splits is .028, .050 and .022: when six are left of twenty, only one cluster can
    have a second client.
    """
    rng, distance = stream(3, "splits"), {}
    for active in (14, 10, 6):
        splits = Splits([4] * 5, active)
        shares = np.array([splits.draw(rng) for _ in range(4_000)]) / active
        distance[active] = ((shares - 0.2) ** 2).sum(axis=1).mean()
        every = [split for split in product(range(1, 5), repeat=5) if sum(split) == active]
        exact = np.mean([sum((count / active - 0.2) ** 2 for count in split) for split in every])
        assert distance[active] == pytest.approx(exact, rel=0.05)
    assert distance[10] > 1.5 * distance[14]
    assert distance[10] > 1.5 * distance[6]
