"""Layers for C clients at once.

Images are laid out [B, C·channels, H, W] in channels_last, so that a convolution of C clients is one grouped
convolution; rows of features are laid out [C, B, …], so that a linear layer is one batched product.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn
from torch.nn import functional

from fdsim.learning.local.keyed_dropout import KeyedDropout, mask, masked_shape

Leaves = list[torch.Tensor]


@dataclass(frozen=True)
class Signal:
    """What flows between layers: values in one of the two layouts, and the step's dropout keys."""

    values: torch.Tensor
    clients: int
    images: bool = False
    keys: torch.Tensor | None = None
    """[dropouts, C]"""

    def as_images(self) -> Signal:
        """Turn [C, B, channels, H, W] into [B, C·channels, H, W] in channels_last."""
        if self.images:
            return self
        values = self.values.transpose(0, 1).flatten(1, 2).contiguous(memory_format=torch.channels_last)
        return replace(self, values=values, images=True)

    def as_rows(self) -> Signal:
        """Turn [B, C·channels, H, W] into [C, B, channels, H, W]."""
        if not self.images:
            return self
        batch, channels, *sides = self.values.shape
        values = self.values.view(batch, self.clients, channels // self.clients, *sides).transpose(0, 1)
        return replace(self, values=values, images=False)

    def then(self, values: torch.Tensor) -> Signal:
        """Return the same signal after a layer."""
        return replace(self, values=values)


class StackedLayer:
    """One layer for C clients; `parameters` is how many of the module's parameter tensors it owns."""

    parameters = 0

    def stack(self, parameters: Leaves, clients: int) -> Leaves:
        """Copy the layer's parameters for each client, in the layout of `forward`."""
        return []

    def unstack(self, leaves: Leaves, clients: int) -> Leaves:
        """Return each parameter as [C, size], in the module's own order of elements."""
        return [leaf.reshape(clients, -1) for leaf in leaves]

    def forward(self, signal: Signal, leaves: Leaves) -> Signal:
        """Apply the layer."""
        raise NotImplementedError(f"{type(self).__name__} has no forward")


class StackedSequence(StackedLayer):
    """Layers one after another."""

    def __init__(self, layers: Sequence[StackedLayer]) -> None:
        self.layers = list(layers)
        self.parameters = sum(layer.parameters for layer in layers)

    def _shared(self, leaves: Leaves) -> Iterator[tuple[StackedLayer, Leaves]]:
        taken = 0
        for layer in self.layers:
            yield layer, leaves[taken : taken + layer.parameters]
            taken += layer.parameters

    def stack(self, parameters: Leaves, clients: int) -> Leaves:
        return [leaf for layer, own in self._shared(parameters) for leaf in layer.stack(own, clients)]

    def unstack(self, leaves: Leaves, clients: int) -> Leaves:
        return [part for layer, own in self._shared(leaves) for part in layer.unstack(own, clients)]

    def forward(self, signal: Signal, leaves: Leaves) -> Signal:
        for layer, own in self._shared(leaves):
            signal = layer.forward(signal, own)
        return signal


class StackedResidual(StackedSequence):
    """Layers whose input is added to their output."""

    def forward(self, signal: Signal, leaves: Leaves) -> Signal:
        after = super().forward(signal, leaves)
        before = signal.as_images() if after.images else signal.as_rows()
        return after.then(before.values + after.values)


class StackedConv(StackedLayer):
    """C convolutions as one grouped convolution."""

    def __init__(self, layer: nn.Conv2d) -> None:
        self.layer = layer
        self.parameters = 1 if layer.bias is None else 2
        # Grouped convolutions of exactly three channels miss the fast kernels on a CPU; a fourth, of zeros, is cheap.
        self.extra = 1 if layer.in_channels // layer.groups == 3 else 0

    def stack(self, parameters: Leaves, clients: int) -> Leaves:
        weight = functional.pad(parameters[0], (0, 0, 0, 0, 0, self.extra))
        stacked = weight.repeat(clients, 1, 1, 1).contiguous(memory_format=torch.channels_last)
        return [stacked, *(bias.repeat(clients) for bias in parameters[1:])]

    def unstack(self, leaves: Leaves, clients: int) -> Leaves:
        inputs = self.layer.in_channels // self.layer.groups
        return [leaf.reshape(clients, -1) for leaf in (leaves[0][:, :inputs], *leaves[1:])]

    def forward(self, signal: Signal, leaves: Leaves) -> Signal:
        layer, clients = self.layer, signal.clients
        if self.extra:
            signal = self._widened(signal)
        signal = signal.as_images()
        bias = leaves[1] if len(leaves) > 1 else None
        groups = clients * layer.groups
        made = functional.conv2d(
            signal.values,
            leaves[0],
            bias,
            layer.stride,
            layer.padding,
            layer.dilation,
            groups,
        )
        return signal.then(made)

    def _widened(self, signal: Signal) -> Signal:
        """Add channels of zeros while laying out the images, in one copy."""
        rows, groups = signal.as_rows().values, self.layer.groups
        clients, batch, channels, height, width = rows.shape
        inputs = channels // groups
        wide = rows.new_zeros(batch, height, width, clients, groups, inputs + self.extra)
        wide[..., :inputs] = rows.view(clients, batch, groups, inputs, height, width).permute(
            1, 4, 5, 0, 2, 3
        )
        return replace(signal, values=wide.flatten(3).permute(0, 3, 1, 2), images=True)


class StackedLinear(StackedLayer):
    """C linear layers as one batched product."""

    def __init__(self, layer: nn.Linear) -> None:
        self.parameters, self.outputs = 1 if layer.bias is None else 2, layer.out_features

    def stack(self, parameters: Leaves, clients: int) -> Leaves:
        # Kept as [in, out], the layout in which its gradient comes.
        weight = parameters[0].t().expand(clients, -1, -1).clone(memory_format=torch.contiguous_format)
        return [weight, *(bias.repeat(clients, 1, 1) for bias in parameters[1:])]

    def unstack(self, leaves: Leaves, clients: int) -> Leaves:
        return [leaf.reshape(clients, -1) for leaf in (leaves[0].transpose(1, 2), *leaves[1:])]

    def forward(self, signal: Signal, leaves: Leaves) -> Signal:
        signal = signal.as_rows()
        rows = signal.values.flatten(1, -2)
        made = torch.baddbmm(leaves[1], rows, leaves[0]) if len(leaves) > 1 else torch.bmm(rows, leaves[0])
        return signal.then(made.view(*signal.values.shape[:-1], made.shape[-1]))


class Elementwise(StackedLayer):
    """A layer that treats each number separately, whatever the layout."""

    def __init__(self, layer: nn.Module) -> None:
        self.layer = layer

    def forward(self, signal: Signal, leaves: Leaves) -> Signal:
        return signal.then(self.layer(signal.values))


class Channelwise(Elementwise):
    """A layer that treats each channel of an image separately, as pooling does."""

    def forward(self, signal: Signal, leaves: Leaves) -> Signal:
        if not signal.images and signal.clients > 0:
            laid = signal.values.permute(0, 2, 3, 4, 1)
            if laid.is_contiguous():
                # With the batch last, what torch takes for the channels of an image are the images of a batch.
                made = self.layer(laid.flatten(0, 1).permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
                return signal.then(made.unflatten(0, laid.shape[:2]).permute(0, 4, 1, 2, 3))
        return super().forward(signal.as_images(), leaves)


class StackedFlatten(StackedLayer):
    """Everything of a sample in one row."""

    def forward(self, signal: Signal, leaves: Leaves) -> Signal:
        signal = signal.as_rows()
        return signal.then(signal.values.flatten(2))


class StackedDropout(StackedLayer):
    """C keyed dropouts; `place` is which of the net's dropouts it is."""

    def __init__(self, layer: KeyedDropout, place: int) -> None:
        self.frac, self.channels, self.place = layer.frac, layer.channels, place

    def forward(self, signal: Signal, leaves: Leaves) -> Signal:
        if signal.keys is None or self.frac == 0.0:
            return signal
        rows = signal.as_rows()
        shape = masked_shape(rows.values.shape[1:], channels=self.channels)
        kept = mask(signal.keys[self.place], shape, self.frac, rows.values.dtype)
        dropped = rows.then(rows.values * kept)
        return dropped.as_images() if signal.images else dropped


class StackedGroupNorm(StackedLayer):
    """C group norms as one with C times the groups."""

    def __init__(self, layer: nn.GroupNorm) -> None:
        self.layer = layer
        self.parameters = 2 if layer.affine else 0

    def stack(self, parameters: Leaves, clients: int) -> Leaves:
        return [parameter.repeat(clients) for parameter in parameters]

    def forward(self, signal: Signal, leaves: Leaves) -> Signal:
        signal = signal.as_images()
        groups = signal.clients * self.layer.num_groups
        scale, shift = leaves if leaves else (None, None)
        return signal.then(functional.group_norm(signal.values, groups, scale, shift, self.layer.eps))


class StackedLayerNorm(StackedLayer):
    """C layer norms: one normalisation, each client's own scale and shift."""

    def __init__(self, layer: nn.LayerNorm) -> None:
        self.layer = layer
        self.parameters = len(list(layer.parameters()))

    def stack(self, parameters: Leaves, clients: int) -> Leaves:
        return [parameter.repeat(clients, *[1] * parameter.dim()) for parameter in parameters]

    def forward(self, signal: Signal, leaves: Leaves) -> Signal:
        signal = signal.as_rows()
        values = functional.layer_norm(signal.values, self.layer.normalized_shape, eps=self.layer.eps)
        between = [1] * (values.dim() - 1 - len(self.layer.normalized_shape))
        own = [leaf.view(signal.clients, *between, *self.layer.normalized_shape) for leaf in leaves]
        if own:
            values = values * own[0]
        return signal.then(values + own[1] if len(own) > 1 else values)


class StackedEmbedding(StackedLayer):
    """C embeddings as one table, in which each client looks up its own part."""

    parameters = 1

    def __init__(self, layer: nn.Embedding) -> None:
        self.layer = layer

    def stack(self, parameters: Leaves, clients: int) -> Leaves:
        return [parameters[0].repeat(clients, 1)]

    def forward(self, signal: Signal, leaves: Leaves) -> Signal:
        words, tokens = self.layer.num_embeddings, signal.values
        offset = (
            torch.arange(signal.clients, device=tokens.device).view(-1, *[1] * (tokens.dim() - 1)) * words
        )
        return signal.then(functional.embedding(tokens + offset, leaves[0]))
