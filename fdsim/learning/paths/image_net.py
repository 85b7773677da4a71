"""A step's gradients of a whole net by the kernel of image_kernel.py, for nets of none but layers that it knows.

One client after the other goes forward and back in one call: what its layers hand on stays in the cache, and no layer
waits for the interpreter. The stacked path computes the same layer by layer, up to rounding.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import torch
from torch import nn

from fdsim.learning.local.samples import Samples
from fdsim.learning.paths.direct_conv import batch_last
from fdsim.learning.paths.group_norm import NormNumbers
from fdsim.learning.paths.image_kernel import call
from fdsim.learning.paths.padded_conv import PaddedShape
from fdsim.learning.paths.stack_loop import Leaves, Step
from fdsim.learning.paths.stacked_images import StackedDirectNorm, StackedDirectResidual, StackedPaddedConv
from fdsim.learning.paths.stacked_layers import (
    Channelwise,
    Elementwise,
    StackedFlatten,
    StackedLayer,
    StackedLinear,
    StackedSequence,
)

#: Larger linear layers are for torch, whose products are quicker than the kernel's plain loops.
_MOST_LINEAR_WEIGHTS = 32_768


class _Kind(IntEnum):
    """Which layer it is."""

    CONV = 0
    NORM = 1
    RELU = 2
    MEAN = 3
    LINEAR = 4


class _Layer(ctypes.Structure):
    """A layer as the kernel is told of it."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("kind", "added", "leaf", "leaves")),
        ("conv", ctypes.c_int64 * 12),
        ("norm", NormNumbers),
    )


@dataclass(frozen=True)
class ImageLayer:
    """One layer, and the images [channels, height, width] that it takes."""

    kind: _Kind
    taken: tuple[int, int, int]
    layer: StackedLayer
    added: int = -1
    """Of a norm: what the layer of this number takes is added."""

    def made(self) -> tuple[int, int, int]:
        """Return the shape of what it makes of an image."""
        match self.kind, self.layer:
            case _Kind.CONV, StackedPaddedConv() as conv:
                _, channels, height, width, _ = conv.shape(1, 1, *self.taken).made
                return channels, height, width
            case _Kind.MEAN, _:
                return self.taken[0], 1, 1
            case _Kind.LINEAR, StackedLinear() as linear:
                return linear.outputs, 1, 1
        return self.taken

    def told(self, batch: int, leaf: int) -> _Layer:
        """Return what the kernel reads, for batches of a size; `leaf` is the first of its tensors of parameters."""
        channels, height, width = self.taken
        shape = PaddedShape(1, batch, height, width, channels, 1, 1, self.made()[0], 0, 0, 1, 1)
        norm = NormNumbers()
        match self.layer:
            case StackedPaddedConv() as conv:
                shape = conv.shape(1, batch, *self.taken)
            case StackedDirectNorm(layer=group, relu=relu):
                norm = NormNumbers(1, batch, channels, height * width, group.num_groups, relu, group.eps)
        return _Layer(self.kind, self.added, leaf, self.layer.parameters, shape.numbers, norm)


class ImageNet:
    """The gradients of a stack of clients, in one call."""

    def __init__(self, layers: Sequence[ImageLayer]) -> None:
        self.layers = list(layers)
        self._told: dict[int, ctypes.Array[_Layer]] = {}

    @classmethod
    def of(cls, net: StackedSequence, samples: Samples, tensors: int) -> ImageNet | None:
        """Return the net of so many tensors of parameters, or None where it has other layers."""
        if len(samples.input_shape) != 3:
            return None
        channels, height, width = samples.input_shape
        layers = image_layers(net, (channels, height, width))
        # Fewer tensors than the layers have would be shared between them.
        if layers is None or sum(each.layer.parameters for each in layers) != tensors:
            return None
        # The kernel trusts labels; torch says what is wrong with them.
        classes, labels = layers[-1].made()[0], samples.labels
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
            return None
        return cls(layers)

    def gradients(self, leaves: Leaves, step: Step) -> tuple[Leaves, torch.Tensor]:
        """Return the gradients of the leaves and each client's batch loss [C]."""
        clients, batch = step.labels.shape
        made = [torch.empty_like(leaf) for leaf in leaves]
        losses = step.weights.new_empty(clients)
        told = self._told_for(batch)
        call(
            *("net_gradients", losses.dtype, told, ctypes.c_int64(len(told)), ctypes.c_int64(clients)),
            *(batch_last(step.inputs), step.labels.contiguous(), step.weights.contiguous()),
            *(_addresses(leaves), _addresses(made), losses),
        )
        return made, losses

    def _told_for(self, batch: int) -> ctypes.Array[_Layer]:
        if batch not in self._told:
            leaf, told = 0, []
            for layer in self.layers:
                told.append(layer.told(batch, leaf))
                leaf += layer.layer.parameters
            self._told[batch] = (_Layer * len(told))(*told)
        return self._told[batch]


def _addresses(tensors: Leaves) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))


def image_layers(net: StackedSequence, input_shape: tuple[int, int, int]) -> list[ImageLayer] | None:
    """Return a stacked net layer by layer: a convolution, others, and at last a linear one; None for any other."""
    found = _followed(net, input_shape, [])
    if found is None or len(found) < 2:
        return None
    return found if (found[0].kind, found[-1].kind) == (_Kind.CONV, _Kind.LINEAR) else None


def _followed(
    net: StackedSequence, taken: tuple[int, int, int], before: list[ImageLayer], *, inside: bool = False
) -> list[ImageLayer] | None:
    """Return the layers so far and those of a sequence, or None where it has others."""
    made = list(before)
    for layer in net.layers:
        shape = made[-1].made() if made else taken
        flat = bool(made) and made[-1].made()[1:] == (1, 1)
        match layer:
            case StackedDirectResidual() if not inside:
                block = _followed(layer, taken, made, inside=True)
                if block is None:
                    return None
                # What the block took is added by its last layer.
                made = [*block[:-1], replace(block[-1], added=len(made))]
            case StackedSequence() if type(layer) is StackedSequence:
                sequence = _followed(layer, taken, made, inside=inside)
                if sequence is None:
                    return None
                made = sequence
            case StackedPaddedConv():
                made.append(ImageLayer(_Kind.CONV, shape, layer))
            case StackedDirectNorm():
                made.append(ImageLayer(_Kind.NORM, shape, layer))
            case Channelwise() if _is_mean(layer.layer):
                made.append(ImageLayer(_Kind.MEAN, shape, layer))
            case Elementwise() if type(layer.layer) is nn.ReLU and type(layer) is Elementwise:
                made.append(ImageLayer(_Kind.RELU, shape, layer))
            case StackedFlatten() if flat:
                pass  # with the batch last it is one row already
            case StackedLinear() if flat and shape[0] * layer.outputs <= _MOST_LINEAR_WEIGHTS:
                made.append(ImageLayer(_Kind.LINEAR, shape, layer))
            case _:
                return None
    return made


def _is_mean(layer: nn.Module) -> bool:
    return type(layer) is nn.AdaptiveAvgPool2d and layer.output_size in (1, (1, 1))
