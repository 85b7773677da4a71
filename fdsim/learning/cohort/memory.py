"""Memory: what a run will need on its accelerator, and how the C library reuses what is freed."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import nn

from fdsim.learning.nets.cost import input_dtype

if TYPE_CHECKING:
    from fdsim.learning.config.training import Training
    from fdsim.learning.trainer import Trainer
    from fdsim.strategies.base import Strategy

_OTHER_ACCELERATOR_BYTES = 4e9
#: Parameters of glibc's mallopt.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


def activations(module: nn.Module, input_shape: tuple[int, ...]) -> int:
    """Count the activations of one sample's forward pass."""
    counted = 0

    def count(layer: nn.Module, inputs: object, output: object) -> None:
        nonlocal counted
        counted += output.numel() if isinstance(output, torch.Tensor) else 0

    hooks = [layer.register_forward_hook(count) for layer in module.modules() if not list(layer.children())]
    try:
        with torch.no_grad():
            module(torch.zeros(1, *input_shape, dtype=input_dtype(module)))
    finally:
        for hook in hooks:
            hook.remove()
    return counted


def client_bytes(module: nn.Module, training: Training, input_shape: tuple[int, ...]) -> float:
    """Estimate what one client of a stack takes: parameters and their gradients, and a batch's activations."""
    parameters = sum(parameter.numel() for parameter in module.parameters())
    copies = 3 + (training.momentum > 0) + (training.proximal_mu > 0)
    # Each activation once for the forward and once for the backward pass, the batch itself as gathered and laid out.
    per_sample = 2 * activations(module, input_shape) + 3 * int(torch.Size(input_shape).numel())
    width = next(module.parameters()).element_size()
    return float(width * (copies * parameters + training.batch_size * per_sample))


def memory_needed(trainer: Trainer, strategies: Sequence[Strategy], clients: int) -> float:
    """Estimate the bytes that data, stacks and the most demanding strategy need at once."""
    from fdsim.learning.cohort.cohort import CohortTrainer

    if not isinstance(trainer, CohortTrainer):
        raise TypeError(f"{type(trainer).__name__} does not report its memory")
    row_bytes = trainer.parameters * torch.empty(0, dtype=trainer.dtype).element_size()
    stacks = trainer.plan.workers * trainer.plan.stack_size * (trainer.client_bytes + row_bytes)
    most_stored = max(
        (clients * row_bytes * (int(strategy.compares) + int(strategy.stores)) for strategy in strategies),
        default=0,
    )
    return float(trainer.data_bytes + stacks + most_stored + 4 * row_bytes)


def free_bytes(accelerator: torch.device) -> float:
    """Return the free memory of an accelerator."""
    if accelerator.type == "cuda":
        return float(torch.cuda.mem_get_info(accelerator)[0])
    if accelerator.type == "mps":
        return float(torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory())
    return _OTHER_ACCELERATOR_BYTES


@cache
def keep_freed_memory() -> bool:
    """Let glibc reuse freed memory instead of unmapping it; return whether that worked.

    A training step frees and takes the same few megabytes again and again; with the default thresholds each of them
    is unmapped, and every page of the next step's tensors has to be faulted in anew, which took a tenth of the time
    of small convolutional nets. Elsewhere than on Linux with glibc nothing is done.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    return bool(library.mallopt(_TRIM_THRESHOLD, 2**30) and library.mallopt(_MMAP_THRESHOLD, 2**25))
