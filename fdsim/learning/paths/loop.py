"""The loop path: one client after another, as anyone would write it; the reference for the other paths."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch.nn.functional import cross_entropy

from fdsim.learning.local.batches import Batches
from fdsim.learning.local.keyed_dropout import dropouts, step_keys
from fdsim.learning.local.params import ParameterLayout
from fdsim.learning.local.samples import Samples
from fdsim.learning.local.sgd import SgdSettings
from fdsim.learning.paths.compiled import Compiled
from fdsim.learning.paths.execution import ExecutionOptions


def pool_before_relu(module: torch.nn.Module) -> torch.nn.Module:
    """Let ReLU follow max-pooling wherever it comes right before it: the same numbers, a quarter of the work."""
    for part in module.modules():
        if type(part) is torch.nn.Sequential:
            for i, (first, second) in enumerate(pairwise(list(part))):
                if type(first) is torch.nn.ReLU and type(second) is torch.nn.MaxPool2d:
                    part[i], part[i + 1] = second, first
    return module


class LoopTrainer:
    """Trains clients in turn with the module itself and torch.optim.SGD."""

    def __init__(self, module: torch.nn.Module, samples: Samples, execution: ExecutionOptions) -> None:
        if execution.channels_last:
            # Parameters keep their logical order of elements.
            module = pool_before_relu(module).to(memory_format=torch.channels_last)
        self.module, self.samples, self.layout, self.execution = (
            module,
            samples,
            ParameterLayout.of(module),
            execution,
        )
        self.dropouts = dropouts(module)
        self._forward = Compiled(module) if execution.compiled else module

    def train(
        self, start: torch.Tensor, batches: Batches, settings: SgdSettings
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return updates [C, P] and each client's mean loss [C]."""
        clients = batches.rows.shape[1]
        rows = torch.from_numpy(batches.rows).to(start.device)
        updates = start.new_empty(clients, start.numel())
        losses = start.new_zeros(clients)
        for client in range(clients):
            sizes = batches.sizes[:, client].tolist()
            keys = step_keys(batches.keys[client : client + 1], len(sizes), len(self.dropouts))
            losses[client] = self._local_round(start, rows[:, client], sizes, keys.tolist(), settings)
            torch.cat([p.detach().reshape(-1) for p in self.module.parameters()], out=updates[client])
        return updates - start, losses

    def _local_round(
        self,
        start: torch.Tensor,
        rows: torch.Tensor,
        sizes: list[int],
        keys: list[list[list[int]]],
        settings: SgdSettings,
    ) -> torch.Tensor | float:
        parameters = list(self.module.parameters())
        origin = [slot.of(start) for slot in self.layout.slots]
        with torch.no_grad():
            for parameter, value in zip(parameters, origin, strict=True):
                parameter.copy_(value)
        optimiser = torch.optim.SGD(
            parameters,
            lr=settings.learning_rate,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
        )
        losses = []
        for step, size in enumerate(sizes):
            if size == 0:
                break
            inputs, labels = self.samples.take(rows[step, :size])
            if self.execution.channels_last and inputs.dim() == 4:
                inputs = inputs.contiguous(memory_format=torch.channels_last)
            optimiser.zero_grad()
            for (_, layer), (key,) in zip(self.dropouts, keys[step], strict=True):
                layer.key.fill_(key)
            with self.execution.mixed_precision():
                loss = cross_entropy(self._forward(inputs), labels)
            losses.append(loss.detach())
            if settings.proximal_mu:
                pull = sum((p - o).square().sum() for p, o in zip(parameters, origin, strict=True))
                loss = loss + 0.5 * settings.proximal_mu * pull
            (loss * self.execution.loss_scale).backward()  # type: ignore[no-untyped-call]
            if self.execution.loss_scale != 1.0:
                torch._foreach_mul_(
                    [p.grad for p in parameters if p.grad is not None], 1.0 / self.execution.loss_scale
                )
            if settings.clip_norm is not None:
                torch.nn.utils.clip_grad_norm_(parameters, settings.clip_norm)
            optimiser.step()
        return torch.stack(losses).mean() if losses else 0.0
