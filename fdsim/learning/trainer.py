"""What the engine asks of a trainer, and the records a trainer returns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from torch import Tensor


@dataclass(frozen=True)
class Chunk:
    """The results of C clients, on the accelerator and not yet synchronised with the host."""

    clients: np.ndarray
    """[C]"""
    updates: Tensor
    """[C, P] w_k − w_t"""
    losses: Tensor
    """[C] mean loss over the local steps; NaN where loss or update is not finite; 0 where no step was taken."""
    last: bool = False
    """Whether nobody trains any more once this chunk is there; False where that is not known."""

    def rows(self, begin: int, end: int) -> Chunk:
        """Return some clients of the chunk; their results lie where the chunk's do."""
        return Chunk(self.clients[begin:end], self.updates[begin:end], self.losses[begin:end])


@dataclass(frozen=True)
class Digest:
    """The results of C clients, reduced where they were trained to what the round needs."""

    clients: np.ndarray
    """[C]"""
    weighted_sum: Tensor
    """[P] weighted sum of their updates."""
    sketches: Tensor | None
    """[C, m]"""
    losses: Tensor
    """[C]"""


@dataclass(frozen=True)
class DigestRequest:
    """What a round needs of S clients when it needs no update whole."""

    weights: np.ndarray
    """[S] weights of the sum."""
    sketch_dim: int | None
    """Length of the sketches; None asks for none."""


@dataclass(frozen=True)
class Evaluation:
    """How good a global model is on the test set."""

    accuracy: float
    loss: float
    """Mean cross-entropy."""
    per_class: np.ndarray
    """[classes] accuracy on each label; NaN where the test set has none."""
    label_mix: np.ndarray
    """[K, classes] fraction of each label in a client's own samples, of the labels that the test set has."""

    def of_clients(self, clients: np.ndarray) -> np.ndarray:
        """Return the accuracy [C] that clients would see on test data with the label mix of their own samples.

        Worked out for those asked about alone: for a million clients it takes ten times as long as the evaluation.
        """
        return np.asarray(self.label_mix[clients] @ np.nan_to_num(self.per_class))


class Trainer(Protocol):
    """Trains clients from given parameters; the same call gives the same bits, whatever came before it."""

    def initial(self) -> Tensor:
        """Return the parameters [P] a run starts from."""

    def train(
        self, start: Tensor, clients: np.ndarray, round_index: int, work_frac: np.ndarray | None = None
    ) -> Iterator[Chunk]:
        """Yield the clients' results chunk by chunk; `work_frac` [S] cuts local work short."""

    def evaluate(self, params: Tensor) -> Evaluation:
        """Evaluate parameters [P] on the test set."""

    def named(self, params: Tensor) -> dict[str, Tensor]:
        """Return parameters [P] as the net's state dict, on the host."""


@runtime_checkable
class DigestingTrainer(Protocol):
    """A trainer that would rather send weighted sums and sketches than whole updates."""

    def digest(
        self,
        start: Tensor,
        clients: np.ndarray,
        round_index: int,
        work_frac: np.ndarray | None,
        request: DigestRequest,
    ) -> Iterator[Digest]:
        """Yield the clients' results, digested."""
