"""The local round of a stack of clients: what the stacked and the vmap path share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from fdsim.learning.local.batches import Batches
from fdsim.learning.local.keyed_dropout import dropouts, step_keys
from fdsim.learning.local.params import ParameterLayout
from fdsim.learning.local.samples import Samples
from fdsim.learning.local.sgd import SgdSettings, StackSgd
from fdsim.learning.paths.execution import ExecutionOptions

Leaves = list[torch.Tensor]

#: A stack sheds finished clients when at most this fraction of it still trains; until then masks freeze them.
_SHED_AT_FRAC = 0.75


@dataclass(frozen=True)
class Step:
    """What a stack sees in one step. C clients, B samples each."""

    inputs: torch.Tensor
    """[C, B, …]"""
    labels: torch.Tensor
    """[C, B]"""
    weights: torch.Tensor
    """[C, B] of each sample in its batch's mean; 0 for padding."""
    keys: torch.Tensor | None
    """[dropouts, C]"""


class StackLoop:
    """Trains a stack of clients step by step; the path computes the gradients."""

    takes_levels = False
    """Whether the path scales grey levels itself."""

    def __init__(self, module: nn.Module, samples: Samples, execution: ExecutionOptions) -> None:
        self.module, self.samples, self.layout = module, samples, ParameterLayout.of(module)
        self.dropouts = dropouts(module)
        self.execution, self.loss_scale = execution, execution.loss_scale

    def stack(self, start: torch.Tensor, clients: int) -> Leaves:
        """Copy the parameters [P] for each client, in the path's own layout, clients first."""
        raise NotImplementedError(f"{type(self).__name__} has no stack")

    def unstack(self, leaves: Leaves, clients: int) -> Leaves:
        """Return each parameter as [C, size], in the module's order."""
        raise NotImplementedError(f"{type(self).__name__} has no unstack")

    def gradients(self, leaves: Leaves, step: Step) -> tuple[Leaves, torch.Tensor]:
        """Return the gradients of the leaves (times `loss_scale`) and each client's batch loss [C]."""
        raise NotImplementedError(f"{type(self).__name__} has no gradients")

    def train(
        self, start: torch.Tensor, batches: Batches, settings: SgdSettings
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return updates [C, P] and each client's mean loss [C]; clients are sorted, most steps first."""
        _, clients, _ = batches.rows.shape
        whole = [leaf.requires_grad_() for leaf in self.stack(start, clients)]
        sgd = StackSgd(settings, whole, clients)
        total = start.new_zeros(clients)
        on = _OnAccelerator(batches, start, len(self.dropouts))
        for step, working in enumerate(on.working):
            if working < sgd.clients and working <= _SHED_AT_FRAC * sgd.clients:
                sgd.shed(working)
            size = sgd.clients
            inputs, labels = self.samples.take(on.rows[step, :size], levels=self.takes_levels)
            keys = None if on.keys is None else on.keys[step, :, :size]
            found, losses = self.gradients(sgd.leaves, Step(inputs, labels, on.weights[step, :size], keys))
            if self.loss_scale != 1.0:
                torch._foreach_mul_(found, 1.0 / self.loss_scale)
            sgd.step(found, None if working == size else on.active[step, :size])
            total[:size] += losses
        with torch.no_grad():
            updates = torch.cat(self.unstack(whole, clients), dim=1).sub_(start)
            return updates, total / on.steps


class _OnAccelerator:
    """A chunk's batches on the accelerator, moved there once."""

    def __init__(self, batches: Batches, like: torch.Tensor, dropout_layers: int) -> None:
        taking = batches.sizes > 0
        self.working: list[int] = taking.sum(axis=1).tolist()
        self.rows = torch.from_numpy(batches.rows).to(like.device)
        self.weights = torch.from_numpy(batches.weights).to(like.device, like.dtype)
        self.active = torch.from_numpy(taking).to(like.device, like.dtype)
        self.steps = torch.from_numpy(np.maximum(batches.steps, 1)).to(like.device, like.dtype)
        self.keys = None
        if dropout_layers:
            keys = step_keys(batches.keys, len(taking), dropout_layers)
            self.keys = torch.from_numpy(keys).to(like.device)
