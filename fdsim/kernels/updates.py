"""What our own C kernel computes of a round's updates on a CPU: products, sums, and how far they are from older ones."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import numpy as np
import torch

from fdsim.kernels.c_kernel import load

_SOURCE = Path(__file__).with_name("updates.c")
#: Functions of the kernel that need memory of their own, and return 1 where there is none.
_MAY_FAIL = ("upper_products", "remember")


@cache
def kernel(dtype: torch.dtype = torch.float32) -> ctypes.CDLL | None:
    """Return the kernel for a type of numbers, or None where it cannot be compiled or does not work."""
    return load(_SOURCE, dtype, prover=__name__, purpose="products of updates", threads=True)


def addresses(rows: torch.Tensor) -> np.ndarray:
    """Return where each of some rows [C, P] lies; the numbers of a row must follow each other."""
    return rows.data_ptr() + np.arange(len(rows)) * rows.stride(0) * rows.element_size()


def upper_products(rows: np.ndarray, width: int, dtype: torch.dtype) -> torch.Tensor:
    """Return the products [S, S] of all pairs of rows that lie at some addresses; below the diagonal, anything."""
    found = torch.empty(len(rows), len(rows), dtype=torch.float64)
    _call("upper_products", dtype, _places(rows), *_sizes(rows, width), found)
    return found


def remember(
    rows: np.ndarray, kept: np.ndarray, counts: np.ndarray, moved: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keep rows instead of others; return ‖row − kept‖² of each, and by how much that makes ‖moved‖² grow.

    Rows and what is kept lie at some addresses. Where a row counts, row − kept is added to `moved` [P].
    """
    found = torch.empty(len(rows) + 1, dtype=torch.float64)
    flags = np.ascontiguousarray(counts, dtype=np.uint8)
    _call(
        *("remember", moved.dtype, _places(rows), _places(kept), flags),
        *(*_sizes(rows, len(moved)), moved, found),
    )
    return found[:-1], found[-1]


def add_weighted_(total: torch.Tensor, rows: np.ndarray, factors: np.ndarray) -> None:
    """Add Σ factor·row to a total [P], in place; the rows lie at some addresses."""
    weights = torch.as_tensor(factors, dtype=total.dtype)
    _call("weighted_sum", total.dtype, _places(rows), weights, *_sizes(rows, len(total)), total)


def sketches(rows: np.ndarray, signs: torch.Tensor, shifts: np.ndarray, folded: int) -> torch.Tensor:
    """Fold rows that lie at some addresses into `folded` numbers each [C, m].

    Number n of a row, times its sign, is added to place (n + shift) mod m, groups of m numbers having a shift each.
    """
    found = torch.empty(len(rows), folded, dtype=signs.dtype)
    turns = np.ascontiguousarray(shifts, dtype=np.int64)
    _call("sketch", signs.dtype, _places(rows), *_sizes(rows, len(signs)), signs, turns, folded, found)
    return found


def _places(rows: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(rows, dtype=np.uintp)


def _sizes(rows: np.ndarray, width: int) -> tuple[int, int, int]:
    return len(rows), width, torch.get_num_threads()


def _call(function: str, dtype: torch.dtype, *arguments: torch.Tensor | np.ndarray | int) -> None:
    library = kernel(dtype)
    if library is None:
        raise RuntimeError(f"there is no kernel for updates of {dtype}")
    called = getattr(library, function)
    called.restype = ctypes.c_int if function in _MAY_FAIL else None
    if called(*map(_passed, arguments)):
        raise MemoryError(f"no memory for '{function}' of a round's updates")


def _passed(argument: torch.Tensor | np.ndarray | int) -> ctypes.c_void_p | ctypes.c_int64:
    if isinstance(argument, int):
        return ctypes.c_int64(argument)
    if isinstance(argument, torch.Tensor):
        return ctypes.c_void_p(argument.data_ptr())
    return ctypes.c_void_p(argument.ctypes.data)


def prove(library: str, number: str) -> None:
    """Hold what a library makes of a few rows against torch; raise if they differ."""
    loaded, dtype = ctypes.CDLL(library), getattr(torch, number)
    globals()["kernel"] = lambda _: loaded  # this process is for nothing else
    rows = torch.arange(13 * 2061, dtype=dtype).mul_(0.7).sin_().view(13, 2061)
    wanted = rows.double() @ rows.double().T
    places = addresses(rows)
    found = upper_products(places, rows.shape[1], dtype)
    torch.testing.assert_close(found.triu(), wanted.triu(), rtol=1e-4, atol=1e-2)
    factors = np.linspace(-1.0, 1.0, len(rows))
    total = torch.ones(rows.shape[1], dtype=dtype)
    add_weighted_(total, places, factors)
    torch.testing.assert_close(total, 1.0 + torch.as_tensor(factors, dtype=dtype) @ rows)
    kept, moved = rows.flip(0).contiguous(), total.clone()
    counts = factors > 0
    moves = rows - kept
    squares, growth = remember(places, addresses(kept), counts, moved)
    torch.testing.assert_close(squares, moves.double().square().sum(dim=1), rtol=1e-4, atol=1e-2)
    torch.testing.assert_close(moved, total + moves[torch.as_tensor(counts)].sum(dim=0))
    grown = moved.double().square().sum() - total.double().square().sum()
    torch.testing.assert_close(growth, grown, rtol=1e-4, atol=1e-2)
    torch.testing.assert_close(kept, rows, rtol=0, atol=0)
    shifts, signs = np.array([3, 0, 299, 7, 100, 41, 5]), torch.ones(rows.shape[1], dtype=dtype)
    folded = torch.zeros(len(rows), 300, dtype=dtype)
    for n in range(rows.shape[1]):
        folded[:, (n + int(shifts[n // 300])) % 300] += rows[:, n]
    torch.testing.assert_close(sketches(places, -signs, shifts, 300), -folded)
