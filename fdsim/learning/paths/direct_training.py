"""Whole local rounds by the kernel of direct_conv.py, for nets of nothing but convolutions it supports and linear layers.

Each client takes all its steps in one call: no operator of torch is called, no step waits for the interpreter, and a
client's parameters stay in the cache. The stacked path computes the same, up to rounding.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace

import numpy as np
import torch
from torch import nn

from fdsim.learning.local.batches import Batches
from fdsim.learning.local.samples import Samples
from fdsim.learning.local.sgd import SgdSettings
from fdsim.learning.paths.direct_conv import ConvShape, call
from fdsim.learning.paths.stacked_direct_conv import StackedDirectConv
from fdsim.learning.paths.stacked_layers import (
    Elementwise,
    StackedFlatten,
    StackedLayer,
    StackedLinear,
    StackedSequence,
)


@dataclass(frozen=True)
class DirectLayer:
    """A layer as the kernel is told of it; of a linear one only inputs, outputs and ReLU of the shape count."""

    linear: bool
    biased: bool
    shape: ConvShape

    @property
    def parameters(self) -> int:
        """How many numbers it has."""
        window = 1 if self.linear else self.shape.rows * self.shape.columns
        return self.shape.outputs * (self.shape.inputs * window + self.biased)

    @property
    def numbers(self) -> list[int]:
        """What the kernel reads."""
        return [self.linear, self.biased, *map(int, astuple(self.shape))]


class _Task(ctypes.Structure):
    """Local rounds of some clients."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("clients", "steps", "batch", "layers", "levels")),
        ("rate", ctypes.c_double),
    )


class DirectTraining:
    """Trains clients one after another, where a step is nothing but the gradient times the learning rate."""

    def __init__(self, layers: list[DirectLayer], samples: Samples) -> None:
        self.layers, self.samples = layers, samples
        numbers = [number for layer in layers for number in layer.numbers]
        self._told = (ctypes.c_int64 * len(numbers))(*numbers)

    @classmethod
    def of(cls, net: StackedSequence, samples: Samples, parameters: int) -> DirectTraining | None:
        """Return the training of a stacked net of so many parameters, or None where it has other layers."""
        if not (samples.channels_last and samples.inputs.dtype in (torch.uint8, samples.dtype)):
            return None
        layers = direct_layers(net, samples.input_shape)
        # Fewer parameters than the layers have would be shared between them.
        if layers is None or sum(layer.parameters for layer in layers) != parameters:
            return None
        # The kernel trusts labels; torch says what is wrong with them.
        classes = layers[-1].shape.outputs
        if len(samples.labels) and not 0 <= int(samples.labels.min()) <= int(samples.labels.max()) < classes:
            return None
        return cls(layers, samples)

    def train(
        self, start: torch.Tensor, batches: Batches, settings: SgdSettings
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return updates [C, P] and each client's mean loss [C]."""
        clients = batches.rows.shape[1]
        updates, losses = start.new_empty(clients, len(start)), start.new_empty(clients)
        self.train_into(updates, losses, start, batches, settings)
        return updates, losses

    def train_into(
        self,
        updates: torch.Tensor,
        losses: torch.Tensor,
        start: torch.Tensor,
        batches: Batches,
        settings: SgdSettings,
    ) -> None:
        """Put updates [C, P] and each client's mean loss [C] there; both are contiguous."""
        steps, clients, batch = batches.rows.shape
        levels = self.samples.inputs.dtype == torch.uint8
        task = _Task(clients, steps, batch, len(self.layers), levels, settings.learning_rate)
        call(
            *("train", start.dtype, task, self._told, self.samples.inputs, self.samples.labels),
            *(_integers(batches.rows), _integers(batches.sizes)),
            *(start.contiguous(), ctypes.c_int64(len(start)), updates, losses),
        )


def _integers(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.int64))


def direct_layers(net: StackedSequence, input_shape: tuple[int, ...]) -> list[DirectLayer] | None:
    """Return a stacked net as the kernel is told of it: convolutions, then linear layers; None for any other."""
    channels, height, width = input_shape
    made: list[DirectLayer] = []
    flat = False
    for layer in _flat(net):
        match layer:
            case StackedDirectConv() if not flat:
                shape = layer.shape(1, 1, channels, height, width)
                _, channels, height, width, _ = shape.made
                made.append(DirectLayer(False, layer.parameters > 1, shape))
            case StackedFlatten() if made and not flat:
                channels, height, width, flat = channels * height * width, 1, 1, True
            case StackedLinear() if flat:
                shape = ConvShape(1, 1, 1, 1, channels, 1, 1, layer.outputs, pool=False, relu=False)
                channels = layer.outputs
                made.append(DirectLayer(True, layer.parameters > 1, shape))
            case Elementwise() if type(layer.layer) is nn.ReLU and made and made[-1].linear:
                made[-1] = replace(made[-1], shape=replace(made[-1].shape, relu=True))
            case _:
                return None
    return made if flat and made[-1].linear else None


def _flat(net: StackedSequence) -> Iterator[StackedLayer]:
    """Yield the layers of a net; a sequence of another kind, such as a residual block, is one of them."""
    for layer in net.layers:
        if type(layer) is StackedSequence:
            yield from _flat(layer)
        else:
            yield layer
