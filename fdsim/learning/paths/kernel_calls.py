"""How tensors are handed to the C kernels of this folder, and what room those need behind them."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import torch

#: Kernels read and write whole vectors, the last of which may reach so many bytes beyond the end of a tensor.
ROOM_BYTES = 64

#: What a kernel is called with.
Argument = torch.Tensor | ctypes.Structure | ctypes.Array[Any] | ctypes.c_int64 | None


def call_kernel(library: ctypes.CDLL, name: str, *arguments: Argument) -> None:
    """Call a function of a kernel; tensors and structures are handed over by their addresses."""
    # ctypes releases the interpreter lock while the kernel runs, so that workers run in parallel.
    failed = getattr(library, name)(*map(_handed, arguments))
    if failed:
        raise MemoryError(f"the kernel has no memory for {name}")


def _handed(argument: Argument) -> Any:
    match argument:
        case torch.Tensor():
            return ctypes.c_void_p(argument.data_ptr())
        case ctypes.Structure():
            return ctypes.byref(argument)
    return argument


def with_room(shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    """Make an empty tensor that may be read and written a vector beyond its end."""
    count = math.prod(shape)
    return like.new_empty(count + ROOM_BYTES // like.element_size())[:count].view(shape)


def roomy(given: torch.Tensor) -> torch.Tensor:
    """Copy a tensor behind which there is no room."""
    end = (given.storage_offset() + given.numel()) * given.element_size()
    if given.untyped_storage().nbytes() >= end + ROOM_BYTES:
        return given
    return with_room(tuple(given.shape), given).copy_(given)
