"""The work of one local round: the only thing devices know about learning."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class NetCost:
    """The cost of a net, per sample and in total."""

    forward_flops: float
    """Floating point operations of one forward pass of one sample (a multiply-add counts as two)."""
    depthwise_frac: float
    """Fraction of these operations in depthwise convolutions, which phones run less efficiently."""
    parameters: int


@dataclass(frozen=True)
class Workload:
    """The work of a local round for each of K clients: samples to process (over all local epochs or steps) and bytes to move."""

    cost: NetCost
    samples: np.ndarray
    """[K] samples processed in one local round: local_epochs × own samples, or local_steps × batch size."""
    bytes_down: int
    bytes_up: int

    @property
    def train_flops(self) -> np.ndarray:
        """[K] operations of a local round; a backward pass costs twice a forward pass."""
        return 3.0 * self.cost.forward_flops * self.samples
