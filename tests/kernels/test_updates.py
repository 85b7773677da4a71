"""The kernel computes what torch does, wherever rows lie, and torch takes its place where it cannot be had."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fdsim.kernels import c_kernel
from fdsim.kernels.updates import add_weighted_, addresses, kernel, remember, sketches, upper_products
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


WIDTHS = [1, 9, 2047, 2048, 8192, 20_011]


@needs_kernel
@pytest.mark.parametrize("count", [0, 1, 4, 7])
@pytest.mark.parametrize("width", WIDTHS)
def test_sums_are_those_of_torch(count: int, width: int) -> None:
    rows, factors, total = rows_of(count, width), np.linspace(-1, 2, count), torch.ones(width).double()
    add_weighted_(total, addresses(rows), factors)
    torch.testing.assert_close(total, 1.0 + torch.as_tensor(factors) @ rows)


@needs_kernel
@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("width", WIDTHS)
def test_rows_are_compared_with_what_was_kept_and_kept_instead(count: int, width: int) -> None:
    rows, kept, moved = rows_of(count, width), rows_of(2 * count, width).flip(0), torch.ones(width).double()
    places, counts = np.arange(count)[::-1] * 2, np.arange(count) % 3 != 1
    moves, others = rows - kept[places.copy()], kept[1::2].clone()
    squares, growth = remember(addresses(rows), addresses(kept)[places], counts, moved)
    torch.testing.assert_close(squares, moves.square().sum(dim=1))
    wanted = 1.0 + moves[torch.as_tensor(counts)].sum(dim=0)
    torch.testing.assert_close(moved, wanted)
    torch.testing.assert_close(growth, wanted.square().sum() - width)
    assert torch.equal(kept[places.copy()], rows)
    assert torch.equal(kept[1::2], others)


@needs_kernel
@pytest.mark.parametrize(("width", "folded"), [(20, 20), (21, 20), (1000, 64), (60_000, 4096)])
def test_sketches_are_groups_turned_and_added_up(width: int, folded: int) -> None:
    rows, rng = rows_of(3, width), np.random.default_rng(2)
    shifts, signs = rng.integers(0, folded, -(-width // folded)), rng.integers(0, 2, width) * 2.0 - 1
    wanted = np.zeros((3, folded))
    for n in range(width):
        wanted[:, (n + shifts[n // folded]) % folded] += signs[n] * rows[:, n].numpy()
    found = sketches(addresses(rows), torch.as_tensor(signs), shifts, folded)
    np.testing.assert_allclose(found, wanted, atol=1e-12)


@needs_kernel
def test_the_number_of_threads_changes_no_bit() -> None:
    rows, before, found = rows_of(23, 50_000, torch.float32), torch.get_num_threads(), []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        kept, moved = rows.flip(0), torch.zeros(50_000)
        squares, growth = remember(addresses(rows), addresses(kept), np.ones(23, dtype=bool), moved)
        add_weighted_(moved, addresses(rows), np.linspace(0, 1, 23))
        products = upper_products(addresses(rows), 50_000, rows.dtype).triu()
        found.append(torch.cat([products.flatten(), squares, growth.reshape(1), moved.double()]))
    torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@needs_kernel
def test_a_compiler_that_cannot_share_torchs_threads_will_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Threads are then the kernel's own, and results the same to the bit."""
    rows = rows_of(23, 50_000, torch.float32)
    wanted = upper_products(addresses(rows), 50_000, rows.dtype).triu()
    picky = tmp_path / "picky"
    picky.write_text(
        f'#!/bin/sh\ncase "$*" in *-fopenmp*) exit 1;; esac\nexec {c_kernel._compiler()[0]} "$@"\n'
    )
    picky.chmod(0o755)
    monkeypatch.setenv("CC", str(picky))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kernel.cache_clear()
    try:
        assert kernel() is not None
        assert torch.equal(upper_products(addresses(rows), 50_000, rows.dtype).triu(), wanted)
        kernel.cache_clear()
        assert kernel() is not None
    finally:
        kernel.cache_clear()
    assert len(list((tmp_path / "fdsim").iterdir())) == 1


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
