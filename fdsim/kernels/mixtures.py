"""Mixtures of stand-ins by our own C kernel: what fdsim/strategies/mixtures.py defines, without its many small arrays."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch

from fdsim.kernels.c_kernel import load

_SOURCE = Path(__file__).with_name("mixtures.c")


class MixtureTask(ctypes.Structure):
    """How stand-ins are mixed: of how many friends, a single one or all, and what counts."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("missing", "active", "friends", "single")),
        *((name, ctypes.c_double) for name in ("common", "mixed_up_to")),
    )


class _Sources(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_void_p) for name in ("apart", "among", "remembered", "mean"))


@dataclass(frozen=True)
class Mixtures:
    """A mixture for each of M missing clients, of S active clients and memory."""

    parts: np.ndarray
    """[M, S + 1]"""
    largest: np.ndarray
    """[M] place of the largest part; S for the mean of the active, S + 1 for memory."""
    error: np.ndarray
    """[M]"""
    largest_error: np.ndarray
    """[M]"""


@cache
def kernel() -> ctypes.CDLL | None:
    """Return the kernel, or None where it cannot be compiled or does not work."""
    return load(_SOURCE, torch.float64, prover=__name__, purpose="mixtures of stand-ins")


def mixtures(
    task: MixtureTask, apart: np.ndarray, among: np.ndarray, remembered: np.ndarray, mean: np.ndarray
) -> Mixtures | None:
    """Return the mixtures, or None where the kernel cannot make them."""
    library = kernel()
    if library is None:
        return None
    # Held here: the kernel is told only where they are.
    given = [np.ascontiguousarray(each, dtype=np.float64) for each in (apart, among, remembered, mean)]
    parts = np.empty((task.missing, task.active + 1))
    largest, error = np.empty(task.missing, dtype=np.int64), np.empty((2, task.missing))
    sources = _Sources(*(each.ctypes.data for each in given))
    made = (parts, largest, error[0], error[1])
    told = [ctypes.c_void_p(each.ctypes.data) for each in made]
    if library.substitute(ctypes.byref(task), ctypes.byref(sources), *told):
        return None
    return Mixtures(*made)


def prove(library: str, number: str) -> None:
    """Hold what a library makes of two friends and memory against what can be worked out by hand; raise if it differs."""
    del number
    loaded = ctypes.CDLL(library)
    globals()["kernel"] = lambda: loaded  # this process is for nothing else
    among = np.array([[0.0, 4.0], [4.0, 0.0]])
    task = MixtureTask(missing=2, active=2, friends=2, single=False, common=0.0, mixed_up_to=2.0)
    apart = np.array([[2.0, 3.0], [np.nan, np.nan]])
    found = mixtures(task, apart, among, np.array([np.nan, np.nan]), np.array([0.5, 0.5]))
    # The mean errs by (2 + 3)/2 − 4/4 = 1.5, so all three count: parts by inverse errors, a third of the mean each way.
    inverse = 1 / np.array([2.0, 3.0, 1.5])
    inverse /= inverse.sum()
    wanted = np.array([inverse[0] + inverse[2] / 2, inverse[1] + inverse[2] / 2, 0.0])
    if found is None or not np.allclose(found.parts[0], wanted, atol=1e-6) or found.largest[0] != 2:
        raise AssertionError(f"{found} where the parts are {wanted}")
