"""Layers of a stack whose images lie with the batch last, by kernels of our own: what nets with padded convolutions need.

Between them nothing is laid out anew: a signal of rows is a view of [C, channels, H, W, B].
"""

from __future__ import annotations

import torch
from torch import nn

from fdsim.learning.paths.group_norm import DirectNorm, NormShape
from fdsim.learning.paths.padded_conv import PaddedConv, PaddedShape
from fdsim.learning.paths.stacked_layers import (
    Elementwise,
    Leaves,
    Signal,
    StackedConv,
    StackedGroupNorm,
    StackedLayer,
    StackedResidual,
    StackedSequence,
)


class StackedPaddedConv(StackedLayer):
    """C convolutions with padding or strides, client by client."""

    def __init__(self, layer: nn.Conv2d) -> None:
        self.layer = layer
        self.parameters = 1 if layer.bias is None else 2

    def stack(self, parameters: Leaves, clients: int) -> Leaves:
        return _copies(parameters, clients)

    def shape(self, clients: int, batch: int, inputs: int, height: int, width: int) -> PaddedShape:
        """Return the shape of the convolution of such images."""
        rows, columns = self.layer.kernel_size
        down, across = map(int, self.layer.padding)
        return PaddedShape(
            *(clients, batch, height, width, inputs, rows, columns, self.layer.out_channels),
            *(down, across, *self.layer.stride),
        )

    def forward(self, signal: Signal, leaves: Leaves) -> Signal:
        signal = signal.as_rows()
        images = _batch_last(signal)
        clients, inputs, height, width, batch = images.shape
        shape = self.shape(clients, batch, inputs, height, width)
        bias = leaves[1] if len(leaves) > 1 else None
        made: torch.Tensor = PaddedConv.apply(images, leaves[0], bias, shape)
        return signal.then(made.permute(0, 4, 1, 2, 3))


class StackedDirectNorm(StackedLayer):
    """C group norms, client by client, and a sum and a ReLU behind each."""

    def __init__(self, layer: nn.GroupNorm, *, relu: bool) -> None:
        self.layer, self.relu = layer, relu
        self.parameters = 2 if layer.affine else 0

    def stack(self, parameters: Leaves, clients: int) -> Leaves:
        return _copies(parameters, clients)

    def forward(self, signal: Signal, leaves: Leaves) -> Signal:
        return self.sum_with(None, signal, leaves)

    def sum_with(self, added: Signal | None, signal: Signal, leaves: Leaves) -> Signal:
        """Normalise, add what is not None, and apply ReLU."""
        signal = signal.as_rows()
        scale, shift = leaves if leaves else (None, None)
        shape = NormShape(self.layer.num_groups, self.layer.eps, self.relu)
        other = None if added is None else _batch_last(added.as_rows())
        made: torch.Tensor = DirectNorm.apply(_batch_last(signal), scale, shift, other, shape)
        return signal.then(made.permute(0, 4, 1, 2, 3))


class StackedDirectResidual(StackedSequence):
    """Layers of which the last is a group norm that the input is added to."""

    def forward(self, signal: Signal, leaves: Leaves) -> Signal:
        *before, (last, own) = self._shared(leaves)
        after = signal
        for layer, its in before:
            after = layer.forward(after, its)
        if not isinstance(last, StackedDirectNorm):
            raise TypeError(f"{type(last).__name__} cannot add the input")
        return last.sum_with(signal, after, own)


def suits_padded(layer: nn.Conv2d) -> bool:
    """Whether the kernel of padded_conv.py can do a convolution."""
    return layer.groups == 1 and layer.dilation == (1, 1) and not isinstance(layer.padding, str)


def with_image_kernels(layers: list[StackedLayer]) -> list[StackedLayer]:
    """Put kernels in the place of convolutions, of group norms and of the sum and the ReLU behind these."""
    made: list[StackedLayer] = []
    left = list(layers)
    while left:
        first = left.pop(0)
        match first:
            case StackedConv() if suits_padded(first.layer):
                made.append(StackedPaddedConv(first.layer))
            case StackedGroupNorm():
                made.append(StackedDirectNorm(first.layer, relu=_takes_relu(left)))
            case StackedResidual(layers=[*before, StackedDirectNorm(relu=False) as last]):
                normed = StackedDirectNorm(last.layer, relu=_takes_relu(left))
                made.append(StackedDirectResidual([*before, normed]))
            case _:
                made.append(first)
    return made


def _takes_relu(left: list[StackedLayer]) -> bool:
    """Take a ReLU off the layers that are left, if it is the first."""
    found = bool(left) and isinstance(left[0], Elementwise) and type(left[0].layer) is nn.ReLU
    if found:
        left.pop(0)
    return found


def _copies(parameters: Leaves, clients: int) -> Leaves:
    return [parameter.expand(clients, *parameter.shape).clone() for parameter in parameters]


def _batch_last(signal: Signal) -> torch.Tensor:
    return signal.values.permute(0, 2, 3, 4, 1)
