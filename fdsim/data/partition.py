"""Partitions: how the train set is divided among clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt

from fdsim.catalogue import Component
from fdsim.data.holdings import Holdings
from fdsim.errors import DataError

PLACE = "data.partition"


@dataclass(frozen=True)
class Division:
    """For each of K clients its rows of the train set, and the cluster they were drawn from, if any."""

    indices: Sequence[np.ndarray]
    true_cluster: np.ndarray | None = None
    """[K] int64; None when the partition has no clusters."""

    @property
    def sample_counts(self) -> np.ndarray:
        """[K] samples of each client."""
        return Holdings.of(self.indices).counts


class Partition(Component):
    """A way to divide the train set among clients."""

    family: ClassVar[str] = "partition"

    def divide(self, labels: np.ndarray, clients: int, rng: np.random.Generator) -> Division:
        """Return disjoint rows of the train set for each client; raise DataError if that is impossible."""
        raise NotImplementedError(f"{type(self).__name__} has no divide")

    def may_fail_by_chance(self) -> bool:
        """Whether clients could get too much or too little with one seed and not with another."""
        return True


def _require_enough(labels: np.ndarray, clients: int, each: int = 1) -> None:
    if clients < 1:
        raise DataError(PLACE, f"{clients} clients", "a run needs at least one")
    if clients * each > len(labels):
        raise DataError(
            PLACE,
            f"{clients} clients × {each} samples are more than the {len(labels)} of the train set",
            "use fewer clients, fewer samples per client, or a larger data set",
        )


class Iid(Partition):
    """Each client gets a random sample of equal size."""

    samples_per_client: PositiveInt | None = Field(None, description="default: all samples, divided equally")

    def divide(self, labels: np.ndarray, clients: int, rng: np.random.Generator) -> Division:
        _require_enough(labels, clients, self.samples_per_client or 1)
        rows = rng.permutation(len(labels))
        if self.samples_per_client is not None:
            rows = rows[: clients * self.samples_per_client]
        return Division(tuple(np.sort(part) for part in np.array_split(rows, clients)))

    def may_fail_by_chance(self) -> bool:
        return False


class Clustered(Partition):
    """Clusters of clients own disjoint labels; a client draws from its cluster's labels (the paper's clustered setting)."""

    clusters: PositiveInt = Field(5, description="clusters of clients whose data are alike")
    labels_per_cluster: PositiveInt = Field(2, description="labels that the clients of a cluster hold")
    samples_per_client: PositiveInt = Field(200, description="samples that each client holds")
    shuffle_labels: bool = Field(
        False, description="draw which labels a cluster owns instead of taking them in order"
    )

    def divide(self, labels: np.ndarray, clients: int, rng: np.random.Generator) -> Division:
        _require_enough(labels, clients)
        classes = int(labels.max()) + 1
        needed = self.clusters * self.labels_per_cluster
        if needed > classes:
            raise DataError(
                PLACE,
                f"{self.clusters} clusters × {self.labels_per_cluster} labels need {needed} labels, the data has {classes}",
                "lower clusters or labels_per_cluster: clusters share no label",
            )
        if clients < self.clusters:
            raise DataError(
                PLACE,
                f"{clients} clients cannot fill {self.clusters} clusters",
                "use at least one client per cluster",
            )
        order = rng.permutation(classes) if self.shuffle_labels else np.arange(classes)
        # Contiguous blocks: client i belongs to cluster i // (K / clusters).
        true_cluster = np.arange(clients, dtype=np.int64) * self.clusters // clients
        indices: list[np.ndarray] = []
        members = np.bincount(true_cluster, minlength=self.clusters)
        for cluster in range(self.clusters):
            owned = order[cluster * self.labels_per_cluster : (cluster + 1) * self.labels_per_cluster]
            pool = rng.permutation(np.flatnonzero(np.isin(np.arange(classes), owned)[labels]))
            wanted = int(members[cluster]) * self.samples_per_client
            if wanted > len(pool):
                raise DataError(
                    PLACE,
                    f"{members[cluster]} clients × {self.samples_per_client} samples are more than the {len(pool)} "
                    f"that cluster {cluster} has (labels {', '.join(str(label) for label in owned)})",
                    f"set samples_per_client to {len(pool) // members[cluster]} or less, or use fewer clients",
                )
            # At once: a million clients, one by one, take a second to sort.
            indices.append(np.sort(pool[:wanted].reshape(-1, self.samples_per_client), axis=1).reshape(-1))
        counts = np.full(clients, self.samples_per_client)
        return Division(Holdings.counted(np.concatenate(indices), counts), true_cluster)

    def may_fail_by_chance(self) -> bool:
        # Labels that are drawn may have few samples.
        return self.shuffle_labels


class Shards(Partition):
    """The train set sorted by label and cut into shards, a few for each client (the paper's general setting)."""

    partitions: PositiveInt = Field(200, description="number of shards that the train set is cut into")
    per_client: PositiveInt = Field(2, description="shards each client takes")

    def divide(self, labels: np.ndarray, clients: int, rng: np.random.Generator) -> Division:
        _require_enough(labels, clients)
        if self.partitions > len(labels):
            raise DataError(
                PLACE,
                f"{self.partitions} shards of {len(labels)} samples",
                "use at most one shard per sample",
            )
        if clients * self.per_client > self.partitions:
            raise DataError(
                PLACE,
                f"{clients} clients × {self.per_client} shards are more than the {self.partitions} there are",
                f"set partitions to at least {clients * self.per_client}, or per_client to fewer",
            )
        # Ties inside a label are broken at random, so that shards of one label are alike.
        shuffled = rng.permutation(len(labels))
        by_label = shuffled[stable_order(labels[shuffled])]
        # The first of them get what is left over, one each.
        sizes = (len(labels) + np.arange(self.partitions)[::-1]) // self.partitions
        shards = Holdings.counted(by_label, sizes)
        taken = rng.permutation(self.partitions)[: clients * self.per_client].reshape(
            clients, self.per_client
        )
        return Division(tuple(np.sort(np.concatenate([shards[shard] for shard in row])) for row in taken))

    def may_fail_by_chance(self) -> bool:
        return False


class Dirichlet(Partition):
    """Label proportions drawn from a Dirichlet distribution: a small alpha gives each client few labels."""

    alpha: PositiveFloat = Field(0.5, description="if small, a client holds few labels; if large, all alike")
    min_samples: PositiveInt = Field(1, description="minimum samples per client")

    def divide(self, labels: np.ndarray, clients: int, rng: np.random.Generator) -> Division:
        _require_enough(labels, clients, self.min_samples)
        for _ in range(100):
            owner = np.empty(len(labels), dtype=np.int64)
            for label in range(int(labels.max()) + 1):
                rows = rng.permutation(np.flatnonzero(labels == label))
                cuts = np.cumsum(rng.dirichlet(np.full(clients, self.alpha)))[:-1] * len(rows)
                owner[rows] = np.searchsorted(np.round(cuts), np.arange(len(rows)), side="right")
            if np.bincount(owner, minlength=clients).min() >= self.min_samples:
                return Division(_rows_by_owner(owner, clients))
        raise DataError(
            PLACE,
            f"in 100 draws some client always had fewer than {self.min_samples} samples (alpha = {self.alpha})",
            "raise alpha, lower min_samples or use fewer clients",
        )


class QuantitySkew(Partition):
    """Equal label mixes, unequal sizes drawn from a Dirichlet distribution."""

    alpha: PositiveFloat = Field(0.5, description="if small, a few clients hold nearly everything")
    min_samples: PositiveInt = Field(1, description="minimum samples per client")

    def divide(self, labels: np.ndarray, clients: int, rng: np.random.Generator) -> Division:
        _require_enough(labels, clients, self.min_samples)
        # The floor is set aside first, so every draw is valid.
        spare = len(labels) - clients * self.min_samples
        cuts = np.round(np.cumsum(rng.dirichlet(np.full(clients, self.alpha)))[:-1] * spare).astype(np.int64)
        sizes = np.diff(np.concatenate([[0], cuts, [spare]])) + self.min_samples
        rows = rng.permutation(len(labels))
        return Division(tuple(np.sort(part) for part in np.split(rows, np.cumsum(sizes)[:-1])))


class ByFile(Partition):
    """A CSV or Parquet table of (client, index) assigns each row; an optional column `cluster` names the true clusters."""

    path: Path = Field(
        description="CSV or Parquet with the columns client and index, and optionally cluster"
        ", seen from the folder in which fdsim is called"
    )

    def divide(self, labels: np.ndarray, clients: int, rng: np.random.Generator) -> Division:
        import pandas as pd

        place, path = f"{PLACE}.path", self.path.expanduser()
        if not path.is_file():
            raise DataError(
                place,
                f"there is no file '{path}'",
                "give a CSV or Parquet file with columns client and index",
            )
        table = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
        missing = {"client", "index"} - set(table.columns)
        if missing:
            raise DataError(
                place,
                f"'{path}' has no column {' and '.join(sorted(missing))}",
                "name the columns client and index",
            )
        owner, rows = table["client"].to_numpy(np.int64), table["index"].to_numpy(np.int64)
        if len(rows) and (rows.min() < 0 or rows.max() >= len(labels)):
            raise DataError(
                place,
                f"'{path}' names rows outside 0…{len(labels) - 1}",
                "index counts the train set's rows from 0",
            )
        if len(np.unique(rows)) != len(rows):
            raise DataError(place, f"'{path}' assigns some row twice", "each row belongs to one client")
        empty = sorted(set(range(clients)) - set(owner.tolist()))
        if empty or owner.max(initial=-1) >= clients or owner.min(initial=0) < 0:
            raise DataError(
                place,
                f"'{path}' is for {owner.max(initial=-1) + 1} clients"
                + (f" and gives client {empty[0]} nothing" if empty else "")
                + f"; the scenario has {clients}",
                "the clients in the file must be 0 … K−1, each with at least one row",
            )
        order = np.argsort(owner, kind="stable")
        counts = np.bincount(owner, minlength=clients)
        indices = tuple(np.sort(part) for part in np.split(rows[order], np.cumsum(counts)[:-1]))
        if "cluster" not in table.columns:
            return Division(indices)
        return Division(indices, table.groupby("client")["cluster"].first().to_numpy(np.int64))


def _rows_by_owner(owner: np.ndarray, clients: int) -> Holdings:
    return Holdings.counted(stable_order(owner), np.bincount(owner, minlength=clients))


def stable_order(values: np.ndarray) -> np.ndarray:
    """Return the order [N] that sorts whole numbers, equal ones staying as they were.

    NumPy sorts short integers by their digits, in half the time that it takes to compare long ones.
    """
    short = len(values) and values.min() >= 0 and values.max() <= np.iinfo(np.uint16).max
    return np.argsort(values.astype(np.uint16) if short else values, kind="stable")
