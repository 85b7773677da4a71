"""One step of local SGD, for a stack of clients at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from fdsim.learning.config.training import Training


@dataclass(frozen=True)
class SgdSettings:
    """The numbers of a round's local SGD."""

    learning_rate: float
    momentum: float
    weight_decay: float
    proximal_mu: float
    clip_norm: float | None

    @classmethod
    def of(cls, training: Training, round_index: int) -> SgdSettings:
        """Read the numbers of one round off the `[training]` table."""
        return cls(
            learning_rate=training.learning_rate_in(round_index),
            momentum=training.momentum,
            weight_decay=training.weight_decay,
            proximal_mu=training.proximal_mu,
            clip_norm=training.clip_norm,
        )

    @property
    def plain(self) -> bool:
        """Whether a step is nothing but the gradient times the learning rate."""
        return not (self.momentum or self.weight_decay or self.proximal_mu) and self.clip_norm is None


class StackSgd:
    """SGD on stacked leaves, each of which has the C clients along its first dimension (perhaps with channels)."""

    def __init__(self, settings: SgdSettings, leaves: Sequence[torch.Tensor], clients: int) -> None:
        self.settings, self.clients = settings, clients
        self.leaves = list(leaves)
        self.origin = [leaf.detach().clone() for leaf in leaves] if settings.proximal_mu else []
        self.velocity: list[torch.Tensor] = []

    def shed(self, clients: int) -> None:
        """Go on with the first `clients` only; the others' leaves stay as they are."""
        before, self.clients = self.clients, clients

        def kept(leaf: torch.Tensor) -> torch.Tensor:
            return leaf.detach()[: leaf.shape[0] // before * clients]

        self.leaves = [kept(leaf).requires_grad_() for leaf in self.leaves]
        self.origin = [kept(leaf) for leaf in self.origin]
        self.velocity = [kept(leaf) for leaf in self.velocity]

    @torch.no_grad()
    def step(self, gradients: Sequence[torch.Tensor], active: torch.Tensor | None) -> None:
        """Move the leaves; `active` [C] is 1 for clients that take this step and 0 for those that are done."""
        settings, moves = self.settings, list(gradients)
        if settings.proximal_mu:
            pull = torch._foreach_sub(self.leaves, self.origin)
            moves = list(torch._foreach_add(moves, pull, alpha=settings.proximal_mu))
        if settings.clip_norm is not None:
            squared = torch.stack([self._by_client(move).flatten(1).square().sum(1) for move in moves]).sum(0)
            # As torch.nn.utils.clip_grad_norm_ has it.
            scale = (settings.clip_norm / (squared.sqrt() + 1e-6)).clamp(max=1.0)
            moves = [self._scaled(move, scale) for move in moves]
        if settings.weight_decay:
            moves = list(torch._foreach_add(moves, self.leaves, alpha=settings.weight_decay))
        if settings.momentum:
            if self.velocity:
                torch._foreach_mul_(self.velocity, settings.momentum)
                torch._foreach_add_(self.velocity, moves)
            else:
                self.velocity = [move.clone() for move in moves]
            moves = self.velocity
        if active is not None:
            moves = [self._scaled(move, active) for move in moves]
        torch._foreach_add_(self.leaves, moves, alpha=-settings.learning_rate)

    def _by_client(self, leaf: torch.Tensor) -> torch.Tensor:
        return leaf.view(self.clients, leaf.shape[0] // self.clients, *leaf.shape[1:])

    def _scaled(self, leaf: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        stacked = self._by_client(leaf)
        return (stacked * factor.view(-1, *[1] * (stacked.dim() - 1))).flatten(0, 1)
