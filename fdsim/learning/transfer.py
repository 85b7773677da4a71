"""One transfer from the accelerator to the host per round."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


class HostTransfer:
    """Collects small tensors on the accelerator and brings them to the host in one transfer."""

    def __init__(self) -> None:
        self._tensors: dict[str, Tensor] = {}

    def put(self, name: str, tensor: Tensor) -> None:
        """Add a tensor under a name."""
        self._tensors[name] = tensor

    def fetch(self) -> dict[str, np.ndarray]:
        """Wait for the accelerator and return everything as float64 arrays."""
        flat = (
            torch.cat([tensor.reshape(-1) for tensor in self._tensors.values()])
            .cpu()
            .numpy()
            .astype(np.float64)
        )
        parts = np.split(flat, np.cumsum([tensor.numel() for tensor in self._tensors.values()])[:-1])
        return {
            name: part.reshape(tuple(tensor.shape))
            for (name, tensor), part in zip(self._tensors.items(), parts, strict=True)
        }
