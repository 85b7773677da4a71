"""The stacked path: all clients of a stack trained as one net, for nets of supported layers."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fdsim.learning.local.batches import Batches
from fdsim.learning.local.samples import Samples
from fdsim.learning.local.sgd import SgdSettings
from fdsim.learning.paths.compiled import Compiled
from fdsim.learning.paths.direct_training import DirectTraining
from fdsim.learning.paths.execution import ExecutionOptions
from fdsim.learning.paths.image_net import ImageNet
from fdsim.learning.paths.stack_loop import Leaves, StackLoop, Step
from fdsim.learning.paths.stacked_direct_conv import StackedDirectConv
from fdsim.learning.paths.stacked_layers import Signal
from fdsim.learning.paths.stacking import stack_of


class StackedTrainer(StackLoop):
    """Trains a stack of clients as one net."""

    def __init__(self, module: nn.Module, samples: Samples, execution: ExecutionOptions) -> None:
        super().__init__(module, samples, execution)
        net = stack_of(module, direct=execution.direct)
        if net is None:
            raise ValueError("the stacked path does not support all layers of this module")
        self.net = net
        first = net.layers[0] if net.layers else None
        self.takes_levels = isinstance(first, StackedDirectConv) and first.pool and samples.channels_last
        self.direct = DirectTraining.of(net, samples, self.layout.size) if execution.direct else None
        self.whole = ImageNet.of(net, samples, len(self.layout.slots)) if execution.direct else None
        self._losses = Compiled(self.losses) if execution.compiled else self.losses

    def train(
        self, start: torch.Tensor, batches: Batches, settings: SgdSettings
    ) -> tuple[torch.Tensor, torch.Tensor]:
        direct = self.direct_for(settings)
        if direct is not None:
            return direct.train(start, batches, settings)
        return super().train(start, batches, settings)

    def direct_for(self, settings: SgdSettings) -> DirectTraining | None:
        """Return what trains clients one by one instead, where it can."""
        return self.direct if settings.plain else None

    def stack(self, start: torch.Tensor, clients: int) -> Leaves:
        return self.net.stack([slot.of(start) for slot in self.layout.slots], clients)

    def unstack(self, leaves: Leaves, clients: int) -> Leaves:
        return self.net.unstack(leaves, clients)

    def gradients(self, leaves: Leaves, step: Step) -> tuple[Leaves, torch.Tensor]:
        if self.whole is not None:
            return self.whole.gradients(leaves, step)
        losses = self._losses(leaves, step)
        # Of their sum: given gradients to begin with, autograd imports sympy to compare shapes, 40 MB in 0.3 s.
        total = losses.sum() if self.loss_scale == 1.0 else losses.sum() * self.loss_scale
        return list(torch.autograd.grad(total, leaves)), losses.detach()

    def losses(self, leaves: Leaves, step: Step) -> torch.Tensor:
        """Return each client's batch loss [C]."""
        with self.execution.mixed_precision():
            signal = Signal(step.inputs, step.inputs.shape[0], keys=step.keys)
            logits = self.net.forward(signal, leaves).as_rows().values
        each = cross_entropy(
            logits.flatten(0, 1).to(step.weights.dtype), step.labels.flatten(), reduction="none"
        )
        return (each.view(step.labels.shape) * step.weights).sum(dim=1)
