"""A residual block as a module that the stacked path supports."""

from __future__ import annotations

import torch
from torch import nn


class Residual(nn.Sequential):
    """Layers in sequence, whose input is added to their output."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        values = input
        for layer in self:
            values = layer(values)
        return input + values
