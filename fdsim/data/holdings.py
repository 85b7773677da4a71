"""Which rows of the train set each client holds: one array for all of them, so that a million clients are no burden."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import overload

import numpy as np


@dataclass(frozen=True, eq=False)
class Holdings(Sequence[np.ndarray]):
    """The rows of K clients, a sequence of K arrays; each is a view of one that has them end to end."""

    rows: np.ndarray
    """[N] int64 rows of client 0, then those of client 1, and so on."""
    starts: np.ndarray
    """[K + 1] int64: client k's rows are rows[starts[k]:starts[k + 1]]."""

    @classmethod
    def of(cls, indices: Sequence[np.ndarray]) -> Holdings:
        """Return K arrays as holdings."""
        if isinstance(indices, cls):
            return indices
        counts = np.fromiter(map(len, indices), dtype=np.int64, count=len(indices))
        rows = [np.asarray(each, dtype=np.int64) for each in indices]
        return cls.counted(np.concatenate(rows) if rows else np.empty(0, dtype=np.int64), counts)

    @classmethod
    def counted(cls, rows: np.ndarray, counts: np.ndarray) -> Holdings:
        """Return holdings whose rows lie end to end; `counts` [K] tells how many are whose."""
        return cls(rows, np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]))

    @property
    def counts(self) -> np.ndarray:
        """[K] how many rows each client holds."""
        return np.diff(self.starts)

    def taken(self, order: np.ndarray) -> Holdings:
        """Return the holdings of clients [K] in another order."""
        counts = self.counts
        if len(counts) and (counts == counts[0]).all():
            # Much faster than one by one, and what nearly all partitions of many clients come to.
            taken = self.rows.reshape(len(counts), -1)[order].reshape(-1)
            return Holdings(taken, self.starts[: len(order) + 1])
        counts = counts[order]
        starts = np.concatenate([[0], np.cumsum(counts)])
        moved = np.repeat(self.starts[order] - starts[:-1], counts)
        return Holdings(self.rows[np.arange(len(moved)) + moved], starts)

    def label_counts(self, labels: np.ndarray, classes: int) -> np.ndarray:
        """Return how many rows of each label [K, classes] each client holds; `labels` are those of the train set."""
        client = np.repeat(np.arange(len(self)), self.counts)
        counts = np.bincount(client * classes + labels[self.rows], minlength=len(self) * classes)
        return counts.reshape(len(self), classes)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self.rows[start:end] for start, end in pairwise(self.starts.tolist()))

    @overload
    def __getitem__(self, client: int) -> np.ndarray: ...
    @overload
    def __getitem__(self, client: slice) -> tuple[np.ndarray, ...]: ...
    def __getitem__(self, client: int | slice) -> np.ndarray | tuple[np.ndarray, ...]:
        if isinstance(client, slice):
            return tuple(self[each] for each in range(*client.indices(len(self))))
        client = range(len(self))[client]
        return self.rows[self.starts[client] : self.starts[client + 1]]
