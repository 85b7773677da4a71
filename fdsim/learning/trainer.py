"""What the engine asks of a trainer: any class with these members will do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from torch import Tensor


class Chunk(Protocol):
    """Some clients' results: `updates` [C, P] are w_k − w_t, `losses` [C] the mean over their local steps.

    A loss is NaN where the loss itself or the client's update is not finite.
    """

    @property
    def clients(self) -> np.ndarray: ...
    @property
    def updates(self) -> Tensor: ...
    @property
    def losses(self) -> Tensor: ...


class Evaluation(Protocol):
    """How good the parameters are on the test set."""

    @property
    def accuracy(self) -> float: ...
    @property
    def loss(self) -> float: ...
    @property
    def per_client(self) -> np.ndarray:
        """[K] accuracy on test data with each client's own label mix."""


class Trainer(Protocol):
    """Trains clients from given parameters; the same call gives the same bits, whatever came before it."""

    def initial(self) -> Tensor:
        """Return the parameters [P] a run starts from."""

    def train(
        self, start: Tensor, clients: np.ndarray, round_index: int, work_frac: np.ndarray | None = None
    ) -> Iterator[Chunk]:
        """Yield the clients' results chunk by chunk; `work_frac` [S] cuts local work short."""

    def evaluate(self, params: Tensor) -> Evaluation:
        """Test parameters."""

    def learning_rate(self, round_index: int) -> float:
        """Return the local learning rate η_L of a round."""


@dataclass(frozen=True)
class Needs:
    """What a round needs of its clients' updates when it needs no update whole."""

    weights: np.ndarray
    """[S] of the weighted sum."""
    sketch_dim: int | None
    """Length of the sketches to compare; None compares nothing."""


@dataclass(frozen=True)
class Digest:
    """Some clients' results, digested where they were trained."""

    clients: np.ndarray
    weighted: Tensor
    """[P] weighted sum of their updates."""
    sketches: Tensor | None
    """[C, m]"""
    losses: Tensor
    """[C]"""


@runtime_checkable
class DigestingTrainer(Protocol):
    """A trainer that would rather send weighted sums and sketches than whole updates."""

    def digest(
        self, start: Tensor, clients: np.ndarray, round_index: int, work_frac: np.ndarray | None, needs: Needs
    ) -> Iterator[Digest]:
        """Yield the clients' results, digested."""
