"""Layers as records: what each costs, without torch, and the torch module it becomes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fdsim.workload import NetCost

if TYPE_CHECKING:
    import torch

Shape = tuple[int, ...]


class Layer:
    """One layer of a net in sequence."""

    def output_shape(self, shape: Shape) -> Shape:
        """Return the shape of one output, given that of one input."""
        return shape

    def flops(self, shape: Shape) -> float:
        """Return the operations of one sample's forward pass; as torch's counter, only products are counted."""
        return 0.0

    def depthwise_flops(self, shape: Shape) -> float:
        """Return those of the operations that are in depthwise convolutions."""
        return 0.0

    def parameters(self, shape: Shape) -> int:
        """Return how many parameters the layer has."""
        return 0

    def module(self, shape: Shape) -> torch.nn.Module:
        """Make the torch module."""
        raise NotImplementedError(f"{type(self).__name__} has no module")


@dataclass(frozen=True)
class Conv(Layer):
    """A two-dimensional convolution."""

    channels: int
    kernel: int
    padding: int = 0
    stride: int = 1
    groups: int = 1

    def output_shape(self, shape: Shape) -> Shape:
        side = [(size + 2 * self.padding - self.kernel) // self.stride + 1 for size in shape[1:]]
        return (self.channels, *side)

    def flops(self, shape: Shape) -> float:
        return 2.0 * math.prod(self.output_shape(shape)) * (shape[0] // self.groups) * self.kernel**2

    def depthwise_flops(self, shape: Shape) -> float:
        return self.flops(shape) if self.groups == shape[0] > 1 else 0.0

    def parameters(self, shape: Shape) -> int:
        return self.channels * (shape[0] // self.groups) * self.kernel**2 + self.channels

    def module(self, shape: Shape) -> torch.nn.Module:
        from torch import nn

        return nn.Conv2d(
            shape[0], self.channels, self.kernel, stride=self.stride, padding=self.padding, groups=self.groups
        )


@dataclass(frozen=True)
class Linear(Layer):
    """A fully connected layer."""

    features: int

    def output_shape(self, shape: Shape) -> Shape:
        return (*shape[:-1], self.features)

    def flops(self, shape: Shape) -> float:
        return 2.0 * math.prod(shape) * self.features

    def parameters(self, shape: Shape) -> int:
        return shape[-1] * self.features + self.features

    def module(self, shape: Shape) -> torch.nn.Module:
        from torch import nn

        return nn.Linear(shape[-1], self.features)


@dataclass(frozen=True)
class Relu(Layer):
    """The positive part."""

    def module(self, shape: Shape) -> torch.nn.Module:
        from torch import nn

        return nn.ReLU()


@dataclass(frozen=True)
class MaxPool(Layer):
    """The largest of each square."""

    size: int = 2

    def output_shape(self, shape: Shape) -> Shape:
        return (shape[0], *(side // self.size for side in shape[1:]))

    def module(self, shape: Shape) -> torch.nn.Module:
        from torch import nn

        return nn.MaxPool2d(self.size)


@dataclass(frozen=True)
class MeanPool(Layer):
    """The mean of each channel: one number each."""

    def output_shape(self, shape: Shape) -> Shape:
        return (shape[0], 1, 1)

    def module(self, shape: Shape) -> torch.nn.Module:
        from torch import nn

        return nn.AdaptiveAvgPool2d(1)


@dataclass(frozen=True)
class Flatten(Layer):
    """Everything in one row."""

    def output_shape(self, shape: Shape) -> Shape:
        return (math.prod(shape),)

    def module(self, shape: Shape) -> torch.nn.Module:
        from torch import nn

        return nn.Flatten()


@dataclass(frozen=True)
class Drop(Layer):
    """Zeroes a fraction of the features, or of whole channels, while training."""

    frac: float
    channels: bool = False

    def module(self, shape: Shape) -> torch.nn.Module:
        from torch import nn

        return nn.Dropout2d(self.frac) if self.channels else nn.Dropout(self.frac)


@dataclass(frozen=True)
class GroupNorm(Layer):
    """Normalises groups of channels within a sample."""

    groups: int

    def parameters(self, shape: Shape) -> int:
        return 2 * shape[0]

    def module(self, shape: Shape) -> torch.nn.Module:
        from torch import nn

        return nn.GroupNorm(self.groups, shape[0])


@dataclass(frozen=True)
class Block(Layer):
    """A residual block: layers whose input is added to their output; they must keep its shape."""

    layers: tuple[Layer, ...]

    def flops(self, shape: Shape) -> float:
        return cost_of(self.layers, shape).forward_flops

    def parameters(self, shape: Shape) -> int:
        return cost_of(self.layers, shape).parameters

    def depthwise_flops(self, shape: Shape) -> float:
        cost = cost_of(self.layers, shape)
        return cost.depthwise_frac * cost.forward_flops

    def module(self, shape: Shape) -> torch.nn.Module:
        from fdsim.learning.nets.residual import Residual

        return Residual(*sequence_of(self.layers, shape).children())


def cost_of(layers: Sequence[Layer], input_shape: Shape) -> NetCost:
    """Add up what a sequence of layers costs."""
    shape, flops, depthwise, parameters = input_shape, 0.0, 0.0, 0
    for layer in layers:
        flops += layer.flops(shape)
        depthwise += layer.depthwise_flops(shape)
        parameters += layer.parameters(shape)
        shape = layer.output_shape(shape)
    return NetCost(
        forward_flops=flops, depthwise_frac=depthwise / flops if flops else 0.0, parameters=parameters
    )


def sequence_of(layers: Sequence[Layer], input_shape: Shape) -> torch.nn.Module:
    """Make the torch module of a sequence of layers."""
    from torch import nn

    shape, modules = input_shape, []
    for layer in layers:
        modules.append(layer.module(shape))
        shape = layer.output_shape(shape)
    return nn.Sequential(*modules)
