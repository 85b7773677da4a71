"""The examples on the accelerator: one copy, from which batches are gathered."""

from __future__ import annotations

import numpy as np
import torch


class Samples:
    """Inputs and labels on an accelerator. N samples."""

    def __init__(
        self, inputs: np.ndarray, labels: np.ndarray, *, accelerator: torch.device, dtype: torch.dtype
    ) -> None:
        self.dtype = dtype
        self.inputs = torch.from_numpy(np.ascontiguousarray(inputs)).to(accelerator)
        if self.inputs.is_floating_point():
            self.inputs = self.inputs.to(dtype)
        self.labels = torch.from_numpy(np.ascontiguousarray(labels, dtype=np.int64)).to(accelerator)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.inputs.shape[1:])

    def take(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Gathers inputs [*rows, …] and labels [*rows]; grey levels become [−1, 1]."""
        flat = rows.reshape(-1)
        inputs = scaled(self.inputs.index_select(0, flat), self.dtype)
        return inputs.view(*rows.shape, *self.inputs.shape[1:]), self.labels.index_select(0, flat).view(
            rows.shape
        )


def scaled(inputs: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Maps grey levels 0…255 to [−1, 1]; leaves everything else as it is."""
    return inputs.to(dtype).mul_(1.0 / 127.5).sub_(1.0) if inputs.dtype == torch.uint8 else inputs
