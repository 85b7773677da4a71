"""The [K, P] store of strategies that keep each client's last update; its size is checked before the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fdsim.errors import InputError
from fdsim.strategies.base import Federation

if TYPE_CHECKING:
    import torch


def check_store_size(place: str, federation: Federation, max_memory_gb: float) -> None:
    """Raise an InputError when K×P numbers take more memory than a strategy may use."""
    needed_gb = federation.clients * federation.parameters * federation.dtype.itemsize / 1e9
    if needed_gb > max_memory_gb:
        raise InputError(
            f"{place}.max_memory_gb",
            f"one stored update for each of {federation.clients} clients takes {needed_gb:.3g} GB, "
            f"more than the {max_memory_gb:g} GB allowed",
            "raise max_memory_gb, or choose a strategy that stores no updates, such as fdms",
        )


def blank_store(federation: Federation) -> torch.Tensor:
    """Make the store [K, P], filled with zeros, on the accelerator."""
    import torch

    return torch.zeros(
        federation.clients, federation.parameters, dtype=federation.dtype, device=federation.accelerator
    )


def combined(stored: torch.Tensor, clients: np.ndarray, coefficients: np.ndarray) -> torch.Tensor:
    """Return Σ coefficientₖ·storedₖ [P] over some clients, copying only rows with a coefficient."""
    import torch

    used = np.flatnonzero(coefficients)
    rows = stored[torch.as_tensor(clients[used], device=stored.device)]
    factors = torch.as_tensor(coefficients[used], dtype=stored.dtype, device=stored.device)
    return factors @ rows
