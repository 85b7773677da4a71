"""The K×P memory of strategies that store what clients sent, with its price checked before the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fdsim.errors import InputError
from fdsim.strategies.base import Federation

if TYPE_CHECKING:
    import torch


def check_memory(place: str, federation: Federation, max_memory_gb: float) -> None:
    """Raise an InputError when K×P numbers are more than a strategy may keep."""
    needed_gb = federation.clients * federation.parameters * federation.dtype.itemsize / 1e9
    if needed_gb > max_memory_gb:
        raise InputError(
            f"{place}.max_memory_gb",
            f"one stored update for each of {federation.clients} clients takes {needed_gb:.3g} GB, "
            f"more than the {max_memory_gb:g} GB allowed",
            "raise max_memory_gb, or choose a strategy that stores no updates, such as fdms",
        )


def blank_memory(federation: Federation) -> torch.Tensor:
    """Make the memory [K, P], filled with zeros, on the accelerator."""
    import torch

    return torch.zeros(
        federation.clients, federation.parameters, dtype=federation.dtype, device=federation.accelerator
    )


def combined(memory: torch.Tensor, clients: np.ndarray, coefficients: np.ndarray) -> torch.Tensor:
    """Return Σ coefficientₖ·memoryₖ [P] over some clients, copying only rows that count."""
    import torch

    used = np.flatnonzero(coefficients)
    rows = memory[torch.as_tensor(clients[used], device=memory.device)]
    factors = torch.as_tensor(coefficients[used], dtype=memory.dtype, device=memory.device)
    return factors @ rows
