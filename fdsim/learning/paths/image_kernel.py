"""The C kernel for nets with padded convolutions and group norm on a CPU, which is compiled at first use.

Images lie with the batch last, [C, channels, H, W, B]. Convolutions of 3×3 without strides take 16 products for four
results in place of 36 (Winograd's way): the same numbers up to rounding.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch

from fdsim.kernels.c_kernel import load
from fdsim.learning.paths.kernel_calls import Argument, call_kernel

_SOURCE = Path(__file__).with_name("image_layers.c")


@cache
def kernel(dtype: torch.dtype = torch.float32) -> ctypes.CDLL | None:
    """Return the kernel for a type of numbers, or None where it cannot be compiled or does not work."""
    return load(_SOURCE, dtype, prover=__name__, purpose="convolutions with padding")


def call(name: str, dtype: torch.dtype, *arguments: Argument) -> None:
    """Call a function of the kernel for a type of numbers."""
    library = kernel(dtype)
    if library is None:
        raise RuntimeError(f"there is no kernel of image layers for {dtype}")
    call_kernel(library, name, *arguments)


def prove(library: str, number: str) -> None:
    """Hold each layer's passes by a library against torch's own; raise if they differ."""
    from fdsim.learning.paths import group_norm, padded_conv

    loaded, dtype = ctypes.CDLL(library), getattr(torch, number)
    globals()["kernel"] = lambda _: loaded  # this process is for nothing else
    padded_conv.prove(dtype)
    group_norm.prove(dtype)
