"""Friend analytics: whether true friends were active, whether they were found, and who stands in for how many."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fdsim.strategies.base import STORED, STORED_ON_MEAN, Blend, Cohort, Strategy

#: Above this many clients no clusters are looked for in R: that takes time and memory in K².
CLUSTERS_UP_TO = 2000


@dataclass(frozen=True)
class FriendFigures:
    """A round's analytics, named as in the rounds table; None where a figure does not apply."""

    friend_present_frac: float | None = None
    friend_hit_frac: float | None = None
    fallback_frac: float | None = None
    friend_stable_frac: float | None = None
    stand_ins_max: int | None = None
    effective_updates: float | None = None
    cluster_agreement: float | None = None


def friend_figures(
    strategy: Strategy,
    cohort: Cohort,
    blend: Blend | None,
    true_cluster: np.ndarray | None,
    last_stand_in: np.ndarray,
    *,
    friendship: tuple[np.ndarray, np.ndarray] | None = None,
) -> FriendFigures:
    """Return a round's analytics; `last_stand_in` [K] is each client's previous stand-in, -1 for none.

    With `friendship`, R and N, also how well the clusters in R agree with the true ones.
    """
    agreement = None
    if friendship is not None and true_cluster is not None:
        found = clusters_in(*friendship, count=len(np.unique(true_cluster)))
        agreement = adjusted_rand_index(found, true_cluster)
    if blend is None:
        return FriendFigures(cluster_agreement=agreement)
    missing, stand_in = cohort.missing, blend.stand_in
    single = stand_in >= 0
    present = hit = fallback = stable = most = None
    if len(missing):
        if true_cluster is not None:
            present = float(np.isin(true_cluster[missing], true_cluster[cohort.active]).mean())
            if strategy.befriends:
                hit = float(
                    (single & (true_cluster[np.maximum(stand_in, 0)] == true_cluster[missing])).mean()
                )
        if strategy.fallback is not None:
            fallback = float((stand_in == strategy.fallback).mean())
    if strategy.befriends:
        most = int(np.bincount(stand_in[single]).max(initial=0)) if single.any() else 0
        before = last_stand_in[missing]
        could = single & np.isin(before, cohort.active)
        stable = float((before == stand_in)[could].mean()) if could.any() else None
    return FriendFigures(present, hit, fallback, stable, most, _effective_updates(cohort, blend), agreement)


def _effective_updates(cohort: Cohort, blend: Blend) -> float:
    """Return (Σw)²/Σw² over active and stored updates: n when n of them weigh alike, 1 when one has all the weight."""
    parts = np.isin(blend.stand_in, (STORED, STORED_ON_MEAN))
    if blend.mixture is not None:
        parts = blend.mixture[:, -1]
    stored = cohort.client_weight[cohort.missing] * parts
    if (blend.stand_in == STORED).any():
        # Leaving others out has raised the stored updates' weights as it has the active ones'.
        stored = stored * blend.weights.sum() / cohort.client_weight[cohort.active].sum()
    weights = np.concatenate([blend.weights, stored])
    return float(weights.sum() ** 2 / (weights**2).sum())


def clusters_in(similarity: np.ndarray, meetings: np.ndarray, count: int) -> np.ndarray:
    """Divide K clients into `count` clusters by average linkage on R; unmet pairs count as average."""
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    clients = len(similarity)
    if clients < 2:
        return np.zeros(clients, dtype=np.int64)
    met = meetings > 0
    np.fill_diagonal(met, False)
    usual = similarity[met].mean() if met.any() else 0.0
    filled = np.where(met, similarity, usual)
    gap = filled.max() - filled
    np.fill_diagonal(gap, 0.0)
    return np.asarray(fcluster(linkage(squareform(gap, checks=False), "average"), count, "maxclust"))


def adjusted_rand_index(first: np.ndarray, second: np.ndarray) -> float:
    """Return how well two divisions agree: 1 for the same, about 0 for unrelated ones."""
    table = np.zeros((int(first.max()) + 1, int(second.max()) + 1))
    np.add.at(table, (first, second), 1)

    def pairs(counts: np.ndarray) -> float:
        return float((counts * (counts - 1) / 2).sum())

    together, rows, columns = pairs(table), pairs(table.sum(axis=1)), pairs(table.sum(axis=0))
    expected = rows * columns / pairs(np.array([len(first)])) if len(first) > 1 else 0.0
    most = (rows + columns) / 2
    return 1.0 if most == expected else (together - expected) / (most - expected)
