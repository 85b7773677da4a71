"""nn.Dropout and its relatives with a mask derived from a key, so that it is the same on every path.

A mask is hashed from (key, position in the batch) instead of drawn from a generator: the key belongs to the client,
the round, the step and the layer, and neither padding nor stacking can change it.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from fdsim.learning.local.batches import mixed

_WORD = 0xFFFFFFFF


def _scrambled(words: torch.Tensor) -> torch.Tensor:
    """Hash 32-bit words held in int64, where their products cannot overflow into the sign."""
    words = ((words ^ (words >> 16)) * 0x7FEB352D) & _WORD
    words = ((words ^ (words >> 15)) * 0x2C1B3C6D) & _WORD
    return words ^ (words >> 16)


def mask(keys: torch.Tensor, shape: torch.Size, frac: float, dtype: torch.dtype) -> torch.Tensor:
    """Return what to multiply by, [*keys, *shape]: 0 for the fraction `frac`, 1/(1 − frac) for the rest."""
    place = torch.arange(shape.numel(), device=keys.device, dtype=torch.int64)
    words = _scrambled(_scrambled(keys.unsqueeze(-1) & _WORD) ^ _scrambled((place * 0x1E3779B1) & _WORD))
    kept = (words >= round(frac * 2**32)).to(dtype) / max(1.0 - frac, 1e-12)
    return kept.view(*keys.shape, *shape)


def masked_shape(shape: torch.Size, *, channels: bool) -> torch.Size:
    """Return the shape of the mask for a batch [B, features…]; one number per channel where whole channels are dropped."""
    return torch.Size((*shape[:2], *(1 for _ in shape[2:]))) if channels else shape


class KeyedDropout(nn.Module):
    """Zeroes a fraction of the features, or of whole `channels`, while training; `key` says which."""

    key: torch.Tensor

    def __init__(self, frac: float, *, channels: bool = False) -> None:
        super().__init__()
        self.frac, self.channels = frac, channels
        self.register_buffer("key", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if not self.training or self.frac == 0.0:
            return inputs
        shape = masked_shape(inputs.shape, channels=self.channels)
        return inputs * mask(self.key, shape, self.frac, inputs.dtype)


def with_keyed_dropout(module: nn.Module) -> nn.Module:
    """Replace a module's nn.Dropout layers, and those that drop whole channels, by keyed ones."""
    if isinstance(module, nn.Dropout):
        return KeyedDropout(module.p)
    if isinstance(module, nn.Dropout1d | nn.Dropout2d | nn.Dropout3d):
        return KeyedDropout(module.p, channels=True)
    for name, child in module.named_children():
        setattr(module, name, with_keyed_dropout(child))
    return module


def dropouts(module: nn.Module) -> list[tuple[str, KeyedDropout]]:
    """List a module's keyed dropouts with their names, in a fixed order."""
    return [(name, layer) for name, layer in module.named_modules() if isinstance(layer, KeyedDropout)]


def step_keys(client_keys: np.ndarray, steps: int, layers: int) -> np.ndarray:
    """Return the keys [S, layers, C] of every dropout at every step, given those of the local round [C]."""
    counter = np.arange(1, steps * layers + 1, dtype=np.uint64).reshape(steps, layers, 1)
    with np.errstate(over="ignore"):
        words = mixed(client_keys + counter * np.uint64(0xD1342543DE82EF95))
    return (words & np.uint64(_WORD)).astype(np.int64)
