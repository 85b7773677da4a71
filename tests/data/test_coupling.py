"""Which device holds which data, and what dropout then tells."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdsim.data.coupling import assign, mutual_information
from fdsim.errors import ScenarioError
from fdsim.rng import stream

GROUP = np.repeat(np.arange(5), 20)
CLUSTER = np.tile(np.arange(5), 20)


def same(coupling: str | float, seed: int = 1) -> float:
    """Share of devices whose shard is of their group's cluster."""
    holds = assign(coupling, GROUP, CLUSTER, stream(seed))  # type: ignore[arg-type]
    return float((CLUSTER[holds] == GROUP).mean())


@given(st.floats(0, 1), st.integers(0, 1000))
def test_every_shard_is_held_once(strength: float, seed: int) -> None:
    assert sorted(assign(strength, GROUP, CLUSTER, stream(seed))) == list(range(100))


def test_by_cluster_random_and_between() -> None:
    assert same("by_cluster") == same(1.0) == 1.0
    assert np.mean([same("random", seed) for seed in range(30)]) == pytest.approx(0.2, abs=0.03)
    assert np.mean([same(0.5, seed) for seed in range(30)]) == pytest.approx(0.6, abs=0.04)
    assert same(0.0) == same("random")


@pytest.mark.parametrize("coupling", [-0.1, 1.5, "by_luck"])
def test_impossible_couplings(coupling: str | float) -> None:
    with pytest.raises(ScenarioError, match="coupling"):
        assign(coupling, GROUP, CLUSTER, stream(1))  # type: ignore[arg-type]


def test_coupling_needs_clusters_and_as_many_shards() -> None:
    with pytest.raises(ScenarioError, match="needs data with known clusters"):
        assign("by_cluster", GROUP, None, stream(1))
    with pytest.raises(ScenarioError, match="cannot hold 3 shards"):
        assign("random", GROUP, np.zeros(3), stream(1))
    assert sorted(assign("random", GROUP, None, stream(1))) == list(range(100))


def test_mutual_information_in_bits() -> None:
    cluster = np.array([0, 0, 1, 1])
    assert mutual_information(cluster, np.array([1.0, 1.0, 0.0, 0.0])) == pytest.approx(1.0)
    assert mutual_information(cluster, np.array([0.3, 0.7, 0.7, 0.3])) == pytest.approx(0.0)
    entropy = -(0.25 * np.log2(0.25) + 0.75 * np.log2(0.75))
    assert mutual_information(cluster, np.array([1, 1, 0.5, 0.5])) == pytest.approx(entropy - 0.5)
    assert mutual_information(cluster, np.array([1.0, np.nan, np.nan, 0.0])) == pytest.approx(1.0)
    assert mutual_information(cluster, np.full(4, np.nan)) == 0.0
