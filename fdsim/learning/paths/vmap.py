"""The vmap path: any module a user brings, mapped over the clients of a stack."""

from __future__ import annotations

import torch
from torch import nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.functional import cross_entropy

from fdsim.learning.local.samples import Samples
from fdsim.learning.paths.compiled import Compiled
from fdsim.learning.paths.execution import ExecutionOptions
from fdsim.learning.paths.stack_loop import Leaves, StackLoop, Step

Tensors = tuple[torch.Tensor, ...]


class VmapTrainer(StackLoop):
    """Trains a stack of clients by vmap over functional_call."""

    def __init__(self, module: nn.Module, samples: Samples, execution: ExecutionOptions) -> None:
        super().__init__(module, samples, execution)
        self.names = [slot.name for slot in self.layout.slots]
        mapped = vmap(grad_and_value(self._scaled_loss, has_aux=True))
        self.mapped = Compiled(mapped) if execution.compiled else mapped

    def stack(self, start: torch.Tensor, clients: int) -> Leaves:
        return [slot.of(start).repeat(clients, *[1] * len(slot.shape)) for slot in self.layout.slots]

    def unstack(self, leaves: Leaves, clients: int) -> Leaves:
        return [leaf.reshape(clients, -1) for leaf in leaves]

    def gradients(self, leaves: Leaves, step: Step) -> tuple[Leaves, torch.Tensor]:
        # One key for each client even without dropouts: vmap maps no empty tuple.
        keys = tuple(step.keys) if step.keys is not None else ()
        values = tuple(leaf.detach() for leaf in leaves)
        found, (_, losses) = self.mapped(values, keys, step.inputs, step.labels, step.weights)
        return list(found), losses

    def _scaled_loss(
        self,
        leaves: Tensors,
        keys: Tensors,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        weights: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        values = dict(zip(self.names, leaves, strict=True))
        values |= {f"{name}.key".lstrip("."): key for (name, _), key in zip(self.dropouts, keys, strict=True)}
        with self.execution.mixed_precision():
            logits = functional_call(self.module, values, (inputs,))
        loss = (cross_entropy(logits.to(weights.dtype), labels, reduction="none") * weights).sum()
        return loss * self.loss_scale, loss
