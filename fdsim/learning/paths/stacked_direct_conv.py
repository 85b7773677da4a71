"""Convolutions of a stack by the kernel of direct_conv.py, each with the pooling and ReLU that follow it."""

from __future__ import annotations

import torch
from torch import nn

from fdsim.learning.paths.direct_conv import ConvShape, DirectConv
from fdsim.learning.paths.stacked_layers import Elementwise, Leaves, Signal, StackedConv, StackedLayer


class StackedDirectConv(StackedLayer):
    """C convolutions, client by client, and what follows them while an image is in the cache."""

    def __init__(self, layer: nn.Conv2d, *, pool: bool, relu: bool) -> None:
        self.layer, self.pool, self.relu = layer, pool, relu
        self.parameters = 1 if layer.bias is None else 2

    def stack(self, parameters: Leaves, clients: int) -> Leaves:
        return [parameter.expand(clients, *parameter.shape).clone() for parameter in parameters]

    def shape(self, clients: int, batch: int, inputs: int, height: int, width: int) -> ConvShape:
        """Return the shape of the convolution of such images."""
        rows, columns = self.layer.kernel_size
        return ConvShape(
            *(clients, batch, height, width, inputs, rows, columns, self.layer.out_channels),
            *(self.pool, self.relu),
        )

    def forward(self, signal: Signal, leaves: Leaves) -> Signal:
        signal = signal.as_rows()
        images = signal.values.permute(0, 2, 3, 4, 1)
        clients, inputs, height, width, batch = images.shape
        shape = self.shape(clients, batch, inputs, height, width)
        made: torch.Tensor = DirectConv.apply(
            images, leaves[0], leaves[1] if len(leaves) > 1 else None, shape
        )
        return signal.then(made.permute(0, 4, 1, 2, 3))


def with_direct_convs(layers: list[StackedLayer]) -> list[StackedLayer]:
    """Put the kernel in the place of convolutions it can do, and of a 2×2 max-pool and a ReLU behind each."""
    made: list[StackedLayer] = []
    left = list(layers)
    while left:
        first = left.pop(0)
        if not (isinstance(first, StackedConv) and suits_direct(first.layer)):
            made.append(first)
            continue
        pool = bool(left) and _is_pool(left[0])
        if pool:
            left.pop(0)
        relu = bool(left) and isinstance(left[0], Elementwise) and type(left[0].layer) is nn.ReLU
        if relu:
            left.pop(0)
        made.append(StackedDirectConv(first.layer, pool=pool, relu=relu))
    return made


def suits_direct(layer: nn.Conv2d) -> bool:
    """Whether the kernel of direct_conv.py should do a convolution."""
    # A 1×1 convolution is a matrix product, for which torch need not lay images out anew.
    plain = (layer.stride, layer.padding, layer.dilation) == ((1, 1), (0, 0), (1, 1))
    return layer.groups == 1 and plain and layer.kernel_size != (1, 1)


def _is_pool(layer: StackedLayer) -> bool:
    if not (isinstance(layer, Elementwise) and type(layer.layer) is nn.MaxPool2d):
        return False
    pool = layer.layer
    return (
        pool.kernel_size in (2, (2, 2))
        and pool.stride in (2, (2, 2))
        and pool.padding in (0, (0, 0))
        and pool.dilation in (1, (1, 1))
        and not pool.ceil_mode
    )
