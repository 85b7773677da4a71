"""Which modules can be stacked, and their stacked form."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from itertools import pairwise

import torch
from torch import nn

from fdsim.learning.local.keyed_dropout import KeyedDropout
from fdsim.learning.nets.residual import Residual
from fdsim.learning.paths import direct_conv, image_kernel
from fdsim.learning.paths import stacked_layers as stacked
from fdsim.learning.paths.stacked_direct_conv import StackedDirectConv, suits_direct, with_direct_convs
from fdsim.learning.paths.stacked_images import StackedPaddedConv, suits_padded, with_image_kernels

Kernel = Callable[[torch.dtype], ctypes.CDLL | None]

#: Exact types: a subclass may have a forward of its own.
_KNOWN = {
    *(nn.Sequential, Residual, KeyedDropout, nn.Conv2d, nn.Linear, nn.GroupNorm, nn.LayerNorm, nn.Embedding),
    *(nn.Flatten, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d),
    *(nn.ReLU, nn.Identity, nn.Tanh, nn.Sigmoid, nn.GELU),
}


def stack_of(module: nn.Module, *, direct: bool = False) -> stacked.StackedSequence | None:
    """Return the stacked form of a module, or None when some layer is not supported.

    With `direct`, convolutions that suit the kernel of direct_conv.py are computed by it, or, where all convolutions of
    the net can be and some have padding or strides, by that of image_kernel.py, as group norms are.
    """
    dropouts: list[KeyedDropout] = []
    layer = _known(module, dropouts)
    if layer is None:
        return None
    sequence = layer if isinstance(layer, stacked.StackedSequence) else stacked.StackedSequence([layer])
    if not direct:
        return sequence
    convs = [layer.layer for layer in _flat(sequence) if isinstance(layer, stacked.StackedConv)]
    # One convolution of torch's own would have images laid out anew before and behind it.
    padded = all(map(suits_padded, convs)) and not all(map(suits_direct, convs))
    return _direct(sequence, padded=padded)


def kernels_of(module: nn.Module) -> list[Kernel]:
    """Return the kernels that a module's layers suit; none where it has no convolutions for them."""
    net = stack_of(module, direct=True)
    kinds = set() if net is None else {type(layer) for layer in _flat(net)}
    if not kinds & {StackedDirectConv, StackedPaddedConv}:
        return []
    # That of direct_conv.py lays images out for both.
    return [direct_conv.kernel, *([image_kernel.kernel] if StackedPaddedConv in kinds else [])]


def _flat(sequence: stacked.StackedSequence) -> Iterator[stacked.StackedLayer]:
    for layer in sequence.layers:
        yield from _flat(layer) if isinstance(layer, stacked.StackedSequence) else (layer,)


def _direct(sequence: stacked.StackedSequence, *, padded: bool) -> stacked.StackedSequence:
    layers = [
        _direct(each, padded=padded) if isinstance(each, stacked.StackedSequence) else each
        for each in sequence.layers
    ]
    return type(sequence)(with_image_kernels(layers) if padded else with_direct_convs(layers))


def _known(layer: nn.Module, dropouts: list[KeyedDropout]) -> stacked.StackedLayer | None:
    if type(layer) not in _KNOWN:
        return None
    match layer:
        case nn.Sequential():
            return _known_sequence(layer, dropouts)
        case KeyedDropout():
            dropouts.append(layer)
            return stacked.StackedDropout(layer, len(dropouts) - 1)
        case nn.Conv2d(padding_mode="zeros"):
            return stacked.StackedConv(layer)
        case nn.Linear():
            return stacked.StackedLinear(layer)
        case nn.GroupNorm():
            return stacked.StackedGroupNorm(layer)
        case nn.LayerNorm():
            return stacked.StackedLayerNorm(layer)
        case nn.Embedding(max_norm=None, padding_idx=None, scale_grad_by_freq=False):
            return stacked.StackedEmbedding(layer)
        case nn.Flatten(start_dim=1, end_dim=-1):
            return stacked.StackedFlatten()
        case nn.MaxPool2d(return_indices=False) | nn.AvgPool2d() | nn.AdaptiveAvgPool2d():
            return stacked.Channelwise(layer)
        case nn.ReLU():
            # Not in place: autograd may still need what came in.
            return stacked.Elementwise(nn.ReLU())
        case nn.Identity() | nn.Tanh() | nn.Sigmoid() | nn.GELU():
            return stacked.Elementwise(layer)
    return None


def _known_sequence(layer: nn.Sequential, dropouts: list[KeyedDropout]) -> stacked.StackedLayer | None:
    children = [_known(child, dropouts) for child in layer]
    known = [child for child in children if child is not None]
    if len(known) < len(children):
        return None
    form = stacked.StackedResidual if isinstance(layer, Residual) else stacked.StackedSequence
    return form(_relu_after_pool(known))


def _relu_after_pool(layers: list[stacked.StackedLayer]) -> list[stacked.StackedLayer]:
    """Swap ReLU behind a max-pool, which gives the same numbers for a quarter of the work."""
    swapped = list(layers)
    for i, (first, second) in enumerate(pairwise(layers)):
        if _wraps(first, nn.ReLU) and _wraps(second, nn.MaxPool2d):
            swapped[i], swapped[i + 1] = second, first
    return swapped


def _wraps(layer: stacked.StackedLayer, kind: type[nn.Module]) -> bool:
    return isinstance(layer, stacked.Elementwise) and isinstance(layer.layer, kind)
