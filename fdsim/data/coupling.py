"""Which device holds which data, and how much dropout then reveals about the data."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fdsim.data.partition import stable_order
from fdsim.errors import ScenarioError

#: The scenario key `coupling`: a word, or a strength between "random" (0) and "by_cluster" (1).
Coupling = Literal["random", "by_cluster"] | float


def strength(coupling: Coupling) -> float:
    """Return the strength in [0, 1] of a scenario's `coupling`."""
    if isinstance(coupling, str):
        words = {"random": 0.0, "by_cluster": 1.0}
        if coupling not in words:
            raise ScenarioError(
                "coupling",
                f"'{coupling}' is not a coupling",
                "'random', 'by_cluster' or a number from 0 to 1",
            )
        return words[coupling]
    if not 0.0 <= coupling <= 1.0:
        raise ScenarioError("coupling", f"{coupling} is not in [0, 1]", "0 is 'random', 1 is 'by_cluster'")
    return float(coupling)


def check(coupling: Coupling, clients: int, cluster: np.ndarray | None) -> None:
    """Raise a ScenarioError where so many devices cannot hold shards of these clusters [K] as the coupling wants."""
    if strength(coupling) > 0.0 and cluster is None:
        raise ScenarioError(
            "coupling",
            f"'{coupling}' needs data with known clusters",
            "choose a clustered partition, or 'random'",
        )
    if cluster is not None and len(cluster) != clients:
        raise ScenarioError("coupling", f"{clients} devices cannot hold {len(cluster)} shards, one each")


def assign(
    coupling: Coupling, group: np.ndarray, cluster: np.ndarray | None, rng: np.random.Generator
) -> np.ndarray:
    """Return the data shard [K] that each device holds: a permutation of the K shards.

    `group` [K] is the fleet group of each device, `cluster` [K] the cluster of each shard. With strength s,
    a random fraction s of the devices takes shards in the order of group and cluster, so that group g holds
    cluster g as far as the sizes allow; the other devices divide the other shards at random.
    """
    clients, bound = len(group), strength(coupling)
    check(coupling, clients, cluster)
    shard = np.empty(clients, dtype=np.int64)
    # Devices by group and shards by cluster, ties in random order, matched one to one.
    devices = rng.permutation(clients)
    devices = devices[stable_order(group[devices])]
    shards = rng.permutation(clients)
    if cluster is not None:
        shards = shards[stable_order(cluster[shards])]
    shard[devices] = shards
    loose = np.flatnonzero(rng.random(clients) >= bound)
    shard[loose] = shard[rng.permutation(loose)]
    return shard


def mutual_information(cluster: np.ndarray, completion_frac: np.ndarray) -> float:
    """Return the mutual information in bits between a client's cluster and whether it completes a round.

    `cluster` [K] is each client's cluster, `completion_frac` [K] the fraction of its rounds it completed (NaN
    for a client never selected, which is left out). 0 means that dropout is independent of the data; 1 bit is
    the maximum.
    """
    selected = ~np.isnan(completion_frac)
    cluster, completed = np.asarray(cluster)[selected], np.asarray(completion_frac, dtype=float)[selected]
    if not len(cluster):
        return 0.0
    _, index = np.unique(cluster, return_inverse=True)
    size = np.bincount(index)
    inside = np.bincount(index, weights=completed) / size
    overall = float(completed.mean())
    return float(max(0.0, _entropy(np.array([overall]))[0] - (size / size.sum() * _entropy(inside)).sum()))


def _entropy(p: np.ndarray) -> np.ndarray:
    p = np.clip(p, 0.0, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        bits = -(p * np.log2(p) + (1 - p) * np.log2(1 - p))
    return np.asarray(np.nan_to_num(bits))
