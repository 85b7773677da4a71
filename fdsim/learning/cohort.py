"""All clients of a round, trained at once, in chunks that stream into the aggregate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from fdsim.data.datasets import Examples
from fdsim.errors import NumericalError
from fdsim.learning.acceleration import Acceleration
from fdsim.learning.batches import BatchStream
from fdsim.learning.client import PlainPath
from fdsim.learning.evaluate import Evaluation, Examiner
from fdsim.learning.nets import Net
from fdsim.learning.params import flat_of
from fdsim.learning.recipe import Recipe
from fdsim.learning.samples import Samples
from fdsim.learning.stacked import StackedPath, stacked_layers
from fdsim.learning.training import Training
from fdsim.rng import torch_seed


@dataclass(frozen=True)
class Chunk:
    """What C clients trained at once came up with; the tensors are on the accelerator and nobody has waited for them."""

    clients: np.ndarray
    """[C]"""
    updates: torch.Tensor
    """[C, P] w_k − w_t"""
    losses: torch.Tensor
    """[C] mean loss over the local steps; NaN where loss or update is not finite; 0 where no step was taken."""
    steps: np.ndarray
    """[C] local steps taken."""


class CohortTrainer:
    """Trains any set of clients from any starting point; the same client, round and start give the same update."""

    def __init__(
        self,
        net: Net,
        examples: Examples,
        indices: tuple[np.ndarray, ...],
        training: Training,
        acceleration: Acceleration,
        seed: int,
    ) -> None:
        self.training, self.acceleration = training, acceleration
        self.accelerator = acceleration.accelerators()[0]
        self.dtype = acceleration.dtype
        input_shape = tuple(examples.train_inputs.shape[1:])
        module = net.build(input_shape, examples.classes, torch_seed(seed, "net"))
        module = module.to(device=self.accelerator, dtype=self.dtype)
        self._initial = flat_of(module)
        self._stream = BatchStream(indices, seed)
        train = Samples(
            examples.train_inputs, examples.train_labels, accelerator=self.accelerator, dtype=self.dtype
        )
        test = Samples(
            examples.test_inputs, examples.test_labels, accelerator=self.accelerator, dtype=self.dtype
        )
        mix = np.stack(
            [np.bincount(examples.train_labels[rows], minlength=examples.classes) for rows in indices]
        )
        self._examiner = Examiner(module, test, classes=examples.classes, label_mix=mix.astype(np.float64))
        self._path = self._chosen_path(module, train)

    def _chosen_path(self, module: torch.nn.Module, train: Samples) -> PlainPath | StackedPath:
        wanted = self.acceleration.path
        if wanted == "auto":
            wanted = "plain" if stacked_layers(module) is None else "stacked"
        return PlainPath(module, train) if wanted == "plain" else StackedPath(module, train)

    @property
    def parameters(self) -> int:
        """P."""
        return self._initial.numel()

    @property
    def sample_counts(self) -> np.ndarray:
        """[K] samples of each client."""
        return self._stream.counts

    @property
    def stack_size(self) -> int:
        """How many clients are trained at once."""
        return 20 if self.acceleration.stack_size == "auto" else self.acceleration.stack_size

    def initial(self) -> torch.Tensor:
        """Answers with the model [P] before round 0."""
        return self._initial.clone()

    def learning_rate(self, round_index: int) -> float:
        """Answers with η_L of a round."""
        return self.training.learning_rate_in(round_index)

    def train(
        self, start: torch.Tensor, clients: np.ndarray, round_index: int, work_frac: np.ndarray | None = None
    ) -> Iterator[Chunk]:
        """Yields the updates of `clients`, chunk by chunk; `work_frac` is the share of its steps each one finishes."""
        clients = np.asarray(clients, dtype=np.int64)
        steps = self.training.steps(self._stream.counts[clients], round_index)
        if work_frac is not None:
            # The tolerance keeps 0.6 × 5 steps at 3 whatever the rounding.
            steps = np.floor(steps * np.asarray(work_frac, dtype=np.float64) + 1e-9).astype(np.int64)
        recipe = Recipe.of(self.training, round_index)
        batch_size = self.training.batch_size_in(round_index)
        for first in range(0, len(clients), self.stack_size):
            part = slice(first, first + self.stack_size)
            batches = self._stream.take(
                clients[part], steps[part], round_index=round_index, batch_size=batch_size
            )
            updates, losses = self._path.train(start, batches, recipe)
            broken = ~torch.isfinite(updates.sum(dim=1))
            yield Chunk(clients[part], updates, losses.masked_fill(broken, float("nan")), steps[part])

    def evaluate(self, params: torch.Tensor) -> Evaluation:
        """Answers with how good the model [P] is on the test set; one host sync."""
        return self._examiner.evaluate(params)


def require_finite(clients: np.ndarray, losses: np.ndarray, round_index: int) -> None:
    """Raises NumericalError naming the first client whose loss or update was NaN or infinite."""
    broken = ~np.isfinite(losses)
    if broken.any():
        client = int(np.asarray(clients)[broken][0])
        raise NumericalError(
            f"client {client} diverged in round {round_index}: its loss or update is not finite "
            f"({int(broken.sum())} of {len(losses)} clients did). Lower training.learning_rate or set training.clip_norm"
        )
