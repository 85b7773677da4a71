"""The stacked path: all clients of a stack trained as one net, for nets made of known layers.

Images are laid out [B, C·channels, H, W] in channels_last, so that a convolution of C clients is one grouped
convolution; rows of features are laid out [C, B, features], so that a linear layer is one batched product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from fdsim.learning.batches import Batches
from fdsim.learning.params import Slots
from fdsim.learning.recipe import Recipe, StackSgd
from fdsim.learning.samples import Samples

Leaves = Sequence[torch.Tensor]


class StackedLayer:
    """One layer for C clients at once; `images` says which of the two layouts it takes and gives."""

    takes_images: bool | None = None
    """None: it takes either and keeps it."""

    def stack(self, parameters: Leaves, clients: int) -> list[torch.Tensor]:
        """Repeats the layer's parameters for each client, laid out as `forward` likes them."""
        return []

    def unstack(self, leaves: Leaves, clients: int) -> list[torch.Tensor]:
        """Answers with each parameter as [C, size], in the module's own order of elements."""
        return []

    def forward(self, inputs: torch.Tensor, leaves: Leaves, clients: int) -> torch.Tensor:
        """Applies the layer."""
        raise NotImplementedError


@dataclass(frozen=True)
class StackedConv(StackedLayer):
    """C convolutions as one grouped convolution."""

    layer: nn.Conv2d
    takes_images = True

    def stack(self, parameters: Leaves, clients: int) -> list[torch.Tensor]:
        weight = parameters[0].repeat(clients, 1, 1, 1).contiguous(memory_format=torch.channels_last)
        return [weight, *(bias.repeat(clients) for bias in parameters[1:])]

    def unstack(self, leaves: Leaves, clients: int) -> list[torch.Tensor]:
        return [leaf.reshape(clients, -1) for leaf in leaves]

    def forward(self, inputs: torch.Tensor, leaves: Leaves, clients: int) -> torch.Tensor:
        layer = self.layer
        bias = leaves[1] if len(leaves) > 1 else None
        return torch.conv2d(
            inputs, leaves[0], bias, layer.stride, layer.padding, layer.dilation, clients * layer.groups
        )


@dataclass(frozen=True)
class StackedLinear(StackedLayer):
    """C linear layers as one batched product."""

    layer: nn.Linear
    takes_images = False

    def stack(self, parameters: Leaves, clients: int) -> list[torch.Tensor]:
        # Kept as [in, out], the layout in which its gradient comes.
        weight = parameters[0].t().expand(clients, -1, -1).clone(memory_format=torch.contiguous_format)
        return [weight, *(bias.repeat(clients, 1, 1) for bias in parameters[1:])]

    def unstack(self, leaves: Leaves, clients: int) -> list[torch.Tensor]:
        return [
            leaves[0].transpose(1, 2).reshape(clients, -1),
            *(leaf.reshape(clients, -1) for leaf in leaves[1:]),
        ]

    def forward(self, inputs: torch.Tensor, leaves: Leaves, clients: int) -> torch.Tensor:
        rows = inputs.flatten(1, -2)
        product = torch.baddbmm(leaves[1], rows, leaves[0]) if len(leaves) > 1 else torch.bmm(rows, leaves[0])
        return product.view(*inputs.shape[:-1], product.shape[-1])


@dataclass(frozen=True)
class Elementwise(StackedLayer):
    """A layer that looks at each number alone, whatever the layout."""

    layer: nn.Module

    def forward(self, inputs: torch.Tensor, leaves: Leaves, clients: int) -> torch.Tensor:
        return self.layer(inputs)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Channelwise(Elementwise):
    """A layer that looks at each channel of an image alone, as pooling does."""

    takes_images = True


@dataclass(frozen=True)
class StackedFlatten(StackedLayer):
    """From images to rows of features."""

    def forward(self, inputs: torch.Tensor, leaves: Leaves, clients: int) -> torch.Tensor:
        return inputs.flatten(2)


def to_images(rows: torch.Tensor) -> torch.Tensor:
    """Turns [C, B, channels, H, W] into [B, C·channels, H, W] in channels_last."""
    return rows.transpose(0, 1).flatten(1, 2).contiguous(memory_format=torch.channels_last)


def to_rows(images: torch.Tensor, clients: int) -> torch.Tensor:
    """Turns [B, C·channels, H, W] into [C, B, channels, H, W]."""
    batch, channels, *sides = images.shape
    return images.view(batch, clients, channels // clients, *sides).transpose(0, 1)


def _flat_layers(module: nn.Module) -> list[nn.Module]:
    if isinstance(module, nn.Sequential):
        return [layer for child in module for layer in _flat_layers(child)]
    return [module]


def _known(layer: nn.Module) -> StackedLayer | None:
    if isinstance(layer, nn.Conv2d) and layer.padding_mode == "zeros":
        return StackedConv(layer)
    if isinstance(layer, nn.Linear):
        return StackedLinear(layer)
    if isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) == (1, -1):
        return StackedFlatten()
    if isinstance(layer, nn.MaxPool2d | nn.AvgPool2d | nn.AdaptiveAvgPool2d):
        return Channelwise(layer)
    if isinstance(layer, nn.ReLU):
        # Not in place: autograd may still need what came in.
        return Elementwise(nn.ReLU())
    if isinstance(layer, nn.Identity | nn.Tanh | nn.Sigmoid | nn.GELU | nn.LeakyReLU):
        return Elementwise(layer)
    return None


def _relu_after_pool(layers: list[StackedLayer]) -> list[StackedLayer]:
    """Swaps ReLU behind a max-pool, which gives the same numbers for a quarter of the work."""
    swapped = list(layers)
    for i in range(len(swapped) - 1):
        first, second = swapped[i], swapped[i + 1]
        if (
            isinstance(first, Elementwise)
            and isinstance(first.layer, nn.ReLU)
            and isinstance(second, Channelwise)
        ):
            if isinstance(second.layer, nn.MaxPool2d):
                swapped[i], swapped[i + 1] = second, first
    return swapped


def stacked_layers(module: nn.Module) -> list[StackedLayer] | None:
    """Answers with a module's layers for stacking, or None when some layer is not known."""
    if not isinstance(module, nn.Sequential):
        return None
    layers = [_known(layer) for layer in _flat_layers(module)]
    known = [layer for layer in layers if layer is not None]
    return _relu_after_pool(known) if len(known) == len(layers) else None


class StackedPath:
    """Trains a whole stack of clients at once."""

    def __init__(self, module: nn.Module, samples: Samples) -> None:
        self.module, self.samples, self.slots = module, samples, Slots.of(module)
        layers = stacked_layers(module)
        if layers is None:
            raise ValueError("the stacked path knows not all layers of this module")
        self.layers = layers
        # How many of the module's parameters each layer owns.
        owned = [len(list(layer.parameters())) for layer in _flat_layers(module)]
        self.owned = [
            owned.pop(0) if isinstance(layer, StackedConv | StackedLinear) else 0
            for owned in [[count for count in owned if count]]
            for layer in layers
        ]

    def train(
        self, start: torch.Tensor, batches: Batches, recipe: Recipe
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Answers with updates [C, P] and each client's mean loss [C]."""
        steps, clients, _ = batches.rows.shape
        accelerator, dtype = start.device, start.dtype
        rows = torch.from_numpy(batches.rows).to(accelerator)
        weights = torch.from_numpy(batches.weights).to(accelerator, dtype)
        taking = batches.sizes > 0
        active = None if taking.all() else torch.from_numpy(taking).to(accelerator, dtype)
        groups = self._stacked(start, clients)
        leaves = [leaf.requires_grad_() for group in groups for leaf in group]
        sgd = StackSgd(recipe, leaves, clients)
        total = start.new_zeros(clients)
        for step in range(steps):
            inputs, labels = self.samples.take(rows[step])
            losses = self._losses(inputs, labels, weights[step], groups)
            gradients = torch.autograd.grad(losses.sum(), leaves)
            sgd.step(gradients, None if active is None else active[step])
            total += losses.detach()
        counts = torch.from_numpy(np.maximum(batches.steps, 1)).to(accelerator, dtype)
        with torch.no_grad():
            parts = [
                part
                for layer, group in zip(self.layers, groups, strict=True)
                for part in layer.unstack(group, clients)
            ]
            return torch.cat(parts, dim=1).sub_(start), total / counts

    def _stacked(self, start: torch.Tensor, clients: int) -> list[list[torch.Tensor]]:
        parameters = [slot.of(start) for slot in self.slots.slots]
        groups, taken = [], 0
        for layer, count in zip(self.layers, self.owned, strict=True):
            groups.append(layer.stack(parameters[taken : taken + count], clients))
            taken += count
        return groups

    def _losses(
        self,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        weights: torch.Tensor,
        groups: list[list[torch.Tensor]],
    ) -> torch.Tensor:
        """Answers with each client's batch loss [C], given inputs [C, B, …], labels and weights [C, B]."""
        clients, images, values = inputs.shape[0], False, inputs
        for layer, leaves in zip(self.layers, groups, strict=True):
            if (isinstance(layer, StackedFlatten) and images) or (layer.takes_images is False and images):
                values, images = to_rows(values, clients), False
            elif layer.takes_images and not images:
                values, images = to_images(values), True
            values = layer.forward(values, leaves, clients)
        each = functional.cross_entropy(values.flatten(0, 1), labels.flatten(), reduction="none")
        return (each.view(labels.shape) * weights).sum(dim=1)
