"""Which modules can be stacked, and their stacked form."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from torch import nn

from fdsim.learning.local.keyed_dropout import KeyedDropout
from fdsim.learning.nets.residual import Residual
from fdsim.learning.paths import stacked_layers as stacked
from fdsim.learning.paths.stacked_direct_conv import StackedDirectConv, with_direct_convs

#: Exact types: a subclass may have a forward of its own.
_KNOWN = {
    *(nn.Sequential, Residual, KeyedDropout, nn.Conv2d, nn.Linear, nn.GroupNorm, nn.LayerNorm, nn.Embedding),
    *(nn.Flatten, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d),
    *(nn.ReLU, nn.Identity, nn.Tanh, nn.Sigmoid, nn.GELU),
}


def stack_of(module: nn.Module, *, direct: bool = False) -> stacked.StackedSequence | None:
    """Return the stacked form of a module, or None when some layer is not supported.

    With `direct`, convolutions that suit the kernel of direct_conv.py are computed by it.
    """
    dropouts: list[KeyedDropout] = []
    layer = _known(module, dropouts)
    if layer is None:
        return None
    sequence = layer if isinstance(layer, stacked.StackedSequence) else stacked.StackedSequence([layer])
    return _direct(sequence) if direct else sequence


def has_direct_convs(module: nn.Module) -> bool:
    """Whether a module has convolutions that suit the kernel of direct_conv.py."""
    net = stack_of(module, direct=True)
    return net is not None and any(isinstance(layer, StackedDirectConv) for layer in _flat(net))


def _flat(sequence: stacked.StackedSequence) -> Iterator[stacked.StackedLayer]:
    for layer in sequence.layers:
        yield from _flat(layer) if isinstance(layer, stacked.StackedSequence) else (layer,)


def _direct(sequence: stacked.StackedSequence) -> stacked.StackedSequence:
    layers = [
        _direct(each) if isinstance(each, stacked.StackedSequence) else each for each in sequence.layers
    ]
    return type(sequence)(with_direct_convs(layers))


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
