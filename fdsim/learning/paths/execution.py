"""How a path computes: precision, compilation, layout."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class ExecutionOptions:
    """Options that change nothing of what is learned, beyond rounding."""

    accelerator: torch.device
    product_dtype: torch.dtype | None = None
    """The type of products under mixed precision; None: that of the parameters."""
    compiled: bool = False
    channels_last: bool = False
    """The layout in which single nets' convolutions are fastest on a CPU."""
    direct: bool = False
    """Whether kernels of our own compute the stacked path's convolutions, as far as they can."""

    @property
    def loss_scale(self) -> float:
        """Half precision loses small gradients to zero unless they are scaled up on the way back."""
        return 1024.0 if self.product_dtype == torch.float16 else 1.0

    def mixed_precision(self) -> AbstractContextManager[object]:
        """Compute products in half precision inside this context, if so configured."""
        if self.product_dtype is None:
            return nullcontext()
        return torch.autocast(self.accelerator.type, dtype=self.product_dtype)
