"""The examples on the accelerator: one copy, from which batches are gathered."""

from __future__ import annotations

import warnings

import numpy as np
import torch


class Samples:
    """Inputs and labels on an accelerator. N samples."""

    def __init__(
        self,
        inputs: np.ndarray,
        labels: np.ndarray,
        *,
        accelerator: torch.device,
        dtype: torch.dtype,
        channels_last: bool = False,
    ) -> None:
        self.dtype, self.input_shape = dtype, tuple(inputs.shape[1:])
        self.inputs = _shared(np.ascontiguousarray(inputs)).to(accelerator)
        # Convolutions on a CPU are faster in channels_last; laid out so once, every batch comes out so.
        self.channels_last = channels_last and self.inputs.dim() == 4
        if self.channels_last:
            self.inputs = self.inputs.permute(0, 2, 3, 1).contiguous()
        if self.inputs.is_floating_point():
            self.inputs = self.inputs.to(dtype)
        self.labels = _shared(np.ascontiguousarray(labels, dtype=np.int64)).to(accelerator)

    def take(self, rows: torch.Tensor, *, levels: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        """Gather inputs [*rows, …] and labels [*rows]; grey levels become [−1, 1], unless `levels` are wanted."""
        flat = rows.reshape(-1)
        inputs = self.inputs.index_select(0, flat)
        if not levels:
            inputs = scaled(inputs, self.dtype)
        if self.channels_last:
            inputs = inputs.permute(0, 3, 1, 2)
        return inputs.view(*rows.shape, *inputs.shape[1:]), self.labels.index_select(0, flat).view(rows.shape)


def _shared(array: np.ndarray) -> torch.Tensor:
    """Return an array as a tensor in the same memory, also one that may only be read, as Arrow's: nobody writes to it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def scaled(inputs: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Map grey levels 0…255 to [−1, 1]; leave everything else as it is."""
    return inputs.to(dtype).mul_(1.0 / 127.5).sub_(1.0) if inputs.dtype == torch.uint8 else inputs
