"""Inner products of a round's updates on a CPU by our own C kernel, which is compiled at first use."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import numpy as np
import torch

from fdsim.kernels.c_kernel import load

_SOURCE = Path(__file__).with_name("updates.c")


@cache
def kernel(dtype: torch.dtype = torch.float32) -> ctypes.CDLL | None:
    """Return the kernel for a type of numbers, or None where it cannot be compiled or does not work."""
    return load(_SOURCE, dtype, prover=__name__, purpose="products of updates")


def addresses(rows: torch.Tensor) -> np.ndarray:
    """Return where each of some rows [C, P] lies; the numbers of a row must follow each other."""
    return rows.data_ptr() + np.arange(len(rows)) * rows.stride(0) * rows.element_size()


def upper_products(rows: np.ndarray, width: int, dtype: torch.dtype) -> torch.Tensor:
    """Return the products [S, S] of all pairs of rows that lie at some addresses; below the diagonal, anything."""
    library = kernel(dtype)
    if library is None:
        raise RuntimeError(f"there is no kernel for products of {dtype}")
    found = torch.empty(len(rows), len(rows), dtype=torch.float64)
    places = np.ascontiguousarray(rows, dtype=np.uintp)
    failed = library.upper_products(
        ctypes.c_void_p(places.ctypes.data),
        *map(ctypes.c_int64, (len(rows), width, torch.get_num_threads())),
        ctypes.c_void_p(found.data_ptr()),
    )
    if failed:
        raise MemoryError(f"no memory for the products of {len(rows)} updates")
    return found


def prove(library: str, number: str) -> None:
    """Hold the products of a few rows by a library against torch's own; raise if they differ."""
    loaded, dtype = ctypes.CDLL(library), getattr(torch, number)
    globals()["kernel"] = lambda _: loaded  # this process is for nothing else
    rows = torch.arange(13 * 2061, dtype=dtype).mul_(0.7).sin_().view(13, 2061)
    wanted = rows.double() @ rows.double().T
    found = upper_products(addresses(rows), rows.shape[1], dtype)
    torch.testing.assert_close(found.triu(), wanted.triu(), rtol=1e-4, atol=1e-2)
