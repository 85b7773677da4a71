"""Which samples a client sees, in which order: derived from (seed, client, round) and nothing else.

The order is a permutation sorted by hashed counters instead of a generator's draws, so that all clients of a chunk are
shuffled at once, and neither the path, the stack size nor the other clients can change a client's batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fdsim.data.holdings import Holdings
from fdsim.rng import stream_key

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_LOW = 2**64 - 1


def mixed(values: np.ndarray) -> np.ndarray:
    """Scramble unsigned 64-bit integers (the finaliser of SplitMix64): a bijection that looks random."""
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(values ^ (values >> np.uint64(31)))


@dataclass(frozen=True)
class Batches:
    """The batches of C clients for one local round, S steps of at most B samples; short ones are padded."""

    rows: np.ndarray
    """[S, C, B] rows of the train set; padding repeats some row of the client."""
    sizes: np.ndarray
    """[S, C] samples in each batch; 0 once a client is done."""
    keys: np.ndarray
    """[C] uint64; everything else random in the local round (nn.Dropout) is derived from it."""

    @property
    def steps(self) -> np.ndarray:
        """[C] steps each client takes."""
        return np.asarray((self.sizes > 0).sum(axis=0))

    @property
    def weights(self) -> np.ndarray:
        """[S, C, B] each sample's weight in its batch's mean loss; 0 for padding."""
        sizes = self.sizes[:, :, None]
        return np.where(np.arange(self.rows.shape[2]) < sizes, 1.0 / np.maximum(sizes, 1), 0.0)


class BatchStream:
    """Every client's batches in every round. K clients."""

    def __init__(self, indices: Sequence[np.ndarray], seed: int) -> None:
        held = Holdings.of(indices)
        self.counts, self._offsets, self._rows = held.counts, held.starts, held.rows
        keys = [stream_key(seed, "batches", client) & _LOW for client in range(len(indices))]
        self._keys = np.array(keys, dtype=np.uint64)

    def take(self, clients: np.ndarray, steps: np.ndarray, *, round_index: int, batch_size: int) -> Batches:
        """Return the first `steps` [C] batches of each client in a round."""
        counts = self.counts[clients]
        width = int(counts.max(initial=1))
        batches_per_pass = -(-counts // batch_size)
        most_steps = int(steps.max(initial=0))
        passes = int((-(-steps // batches_per_pass)).max(initial=0))
        keys = mixed(self._keys[clients] + mixed(np.asarray(np.uint64(round_index) + _GOLDEN)))
        order = self._orders(keys, counts, passes, width)
        step = np.arange(most_steps, dtype=np.int64)[:, None]
        which_pass, which_batch = np.divmod(step, batches_per_pass[None, :])
        batch_width = min(batch_size, width)
        position = (which_batch * batch_size)[:, :, None] + np.arange(batch_width)
        done = step >= steps[None, :]
        sizes = np.where(done, 0, np.minimum(counts[None, :] - which_batch * batch_size, batch_size))
        inside = np.minimum(position, (counts - 1)[None, :, None])
        column = np.arange(len(clients))[None, :, None]
        # A finished client's passes may lie beyond those drawn; any row does for padding.
        drawn = np.minimum(which_pass, max(passes - 1, 0))[:, :, None]
        own = order[column, drawn, inside] if passes else inside
        rows = self._rows[self._offsets[clients][None, :, None] + own]
        return Batches(rows, sizes, keys)

    @staticmethod
    def _orders(keys: np.ndarray, counts: np.ndarray, passes: int, width: int) -> np.ndarray:
        """Shuffle [C, passes, width]: each client's positions below its count come first, in random order."""
        with np.errstate(over="ignore"):
            of_pass = mixed(keys[:, None] + np.arange(1, passes + 1, dtype=np.uint64) * _GOLDEN)
            counter = np.arange(1, width + 1, dtype=np.uint64) * _GOLDEN
            drawn = mixed(of_pass[:, :, None] + counter) >> np.uint64(1)
        beyond = np.arange(width) >= counts[:, None, None]
        return np.argsort(np.where(beyond, np.uint64(_LOW), drawn), axis=-1, kind="stable")
