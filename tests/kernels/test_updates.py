"""The kernel multiplies as torch does, wherever rows lie, and torch takes its place where it cannot be had."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fdsim.kernels import c_kernel
from fdsim.kernels.updates import addresses, kernel, upper_products
from fdsim.learning.similarity import UpdateComparer
from fdsim.strategies.base import Federation, UpdateScore

needs_kernel = pytest.mark.skipif(kernel() is None, reason="there is no C compiler")


def rows_of(count: int, width: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(1), dtype=dtype)


@needs_kernel
@pytest.mark.parametrize("count", [1, 2, 5, 7, 31])
@pytest.mark.parametrize("width", [1, 9, 2047, 2048, 20_011])
def test_products_are_those_of_torch(count: int, width: int) -> None:
    rows = rows_of(count, width)
    found = upper_products(addresses(rows), width, rows.dtype)
    np.testing.assert_allclose(np.triu(found), np.triu(rows @ rows.T), rtol=0, atol=1e-9)


@needs_kernel
def test_single_precision_loses_no_more_than_torch_does() -> None:
    rows = rows_of(40, 60_000, torch.float32)
    exact = (rows.double() @ rows.double().T).triu()
    ours = (upper_products(addresses(rows), 60_000, rows.dtype).triu() - exact).abs().max()
    theirs = ((rows @ rows.T).double().triu() - exact).abs().max()
    assert ours < 2 * theirs


@needs_kernel
def test_the_number_of_threads_changes_no_bit() -> None:
    rows, before, found = rows_of(23, 50_000, torch.float32), torch.get_num_threads(), []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        found.append(upper_products(addresses(rows), 50_000, rows.dtype).triu())
    torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def compared(direct: bool, wanted: np.ndarray | None, rows: torch.Tensor) -> torch.Tensor:
    """What a comparer makes of chunks that arrive in another order than clients have."""
    federation = Federation(
        *(len(rows), 1, rows.shape[1], 0, np.full(len(rows), 1 / len(rows)), None),
        *(torch.device("cpu"), rows.dtype, direct),
    )
    comparer = UpdateComparer(UpdateScore(), federation)
    assert comparer.direct == direct
    for _ in range(2):  # the second round must not see anything of the first
        comparer.begin(0, wanted, len(rows))
        for chunk in np.array_split(np.random.default_rng(0).permutation(len(rows)), 4):
            comparer.add(chunk, rows[chunk] if len(chunk) % 2 else rows.T.contiguous().T[chunk])
        found = comparer.products()
    return found.triu()


@needs_kernel
@pytest.mark.parametrize("some", [False, True], ids=["all pairs", "groups"])
def test_a_comparer_with_the_kernel_is_one_without(some: bool) -> None:
    rows = rows_of(21, 300)
    cluster = np.arange(21) % 4
    wanted = (cluster[:, None] == cluster) & (cluster > 0) if some else None
    torch.testing.assert_close(compared(True, wanted, rows), compared(False, wanted, rows))


@needs_kernel
def test_an_update_that_never_came_is_noticed() -> None:
    federation = Federation(3, 1, 10, 0, np.full(3, 1 / 3), None, torch.device("cpu"), torch.float64, True)
    comparer = UpdateComparer(UpdateScore(), federation)
    comparer.begin(0, None, 3)
    comparer.add(np.arange(2), rows_of(2, 10))
    with pytest.raises(RuntimeError, match="never added"):
        comparer.products()


def test_without_a_compiler_torch_multiplies(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel.cache_clear()
    monkeypatch.setattr(c_kernel, "_compiler", lambda: None)
    federation = Federation(3, 1, 10, 0, np.full(3, 1 / 3), None, torch.device("cpu"), torch.float64, True)
    try:
        comparer = UpdateComparer(UpdateScore(), federation)
    finally:
        kernel.cache_clear()
    assert not comparer.direct
    rows = rows_of(3, 10)
    comparer.begin(0, None, 3)
    comparer.add(np.arange(3), rows)
    torch.testing.assert_close(comparer.products(), rows @ rows.T)
