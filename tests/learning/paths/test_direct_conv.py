"""The convolution kernel gives what torch gives, and torch's own takes its place where it cannot be had."""

from __future__ import annotations

import _ctypes
import errno
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from fdsim.data.datasets import Examples
from fdsim.kernels import c_kernel
from fdsim.learning.cohort.cohort import CohortTrainer
from fdsim.learning.config.acceleration import Acceleration
from fdsim.learning.config.training import Training
from fdsim.learning.local.samples import scaled
from fdsim.learning.nets.library import CifarCnn, Mlp
from fdsim.learning.paths import direct_conv
from fdsim.learning.paths.direct_conv import ConvShape, DirectConv, batch_last, kernel

needs_kernel = pytest.mark.skipif(kernel() is None, reason="there is no C compiler")


def plainly(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, shape: ConvShape) -> torch.Tensor:
    """The same by torch: x [C, inputs, H, W, B], w [C, outputs, inputs, rows, columns], b [C, outputs]."""
    made = []
    for client in range(shape.clients):
        sums = functional.conv2d(x[client].permute(3, 0, 1, 2), w[client], b[client])
        pooled = functional.max_pool2d(sums, 2) if shape.pool else sums
        made.append((functional.relu(pooled) if shape.relu else pooled).permute(1, 2, 3, 0))
    return torch.stack(made)


@needs_kernel
@pytest.mark.parametrize("pool", [False, True])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize(
    ("sides", "inputs", "kernel_sides", "outputs"),
    [
        *(
            ((32, 32), 3, (5, 5), 6),
            ((14, 14), 6, (5, 5), 16),
            ((28, 28), 1, (5, 5), 10),
            ((12, 12), 10, (5, 5), 20),
        ),
        *(((9, 13), 2, (3, 3), 8), ((7, 6), 4, (1, 1), 1), ((8, 8), 32, (2, 4), 32), ((5, 5), 1, (4, 4), 3)),
        *(((21, 9), 5, (3, 1), 25), ((4, 40), 7, (3, 3), 31)),
    ],
)
@pytest.mark.parametrize("batch", [1, 2, 5, 20])
def test_the_kernel_does_what_torch_does(sides, inputs, kernel_sides, outputs, pool, relu, batch):
    shape = ConvShape(3, batch, *sides, inputs, *kernel_sides, outputs, pool, relu)
    random = torch.Generator().manual_seed(outputs)
    x = torch.randn(3, inputs, *sides, batch, dtype=torch.float64, generator=random).requires_grad_()
    w = torch.randn(3, outputs, inputs, *kernel_sides, dtype=torch.float64, generator=random).requires_grad_()
    b = torch.randn(3, outputs, dtype=torch.float64, generator=random).requires_grad_()
    ours = DirectConv.apply(x, w, b, shape)
    theirs = plainly(x, w, b, shape)
    assert torch.allclose(ours, theirs, rtol=0, atol=1e-12)
    way_back = torch.randn(theirs.shape, dtype=torch.float64, generator=random)
    found = torch.autograd.grad(ours, [x, w, b], way_back)
    expected = torch.autograd.grad(theirs, [x, w, b], way_back)
    for mine, its in zip(found, expected, strict=True):
        assert torch.allclose(mine, its, rtol=0, atol=1e-11)


@needs_kernel
def test_without_a_bias_there_is_no_gradient_of_one():
    shape = ConvShape(2, 3, 6, 6, 2, 3, 3, 4, False, False)
    x, w = torch.randn(2, 2, 6, 6, 3), torch.randn(2, 4, 2, 3, 3, requires_grad=True)
    ours = DirectConv.apply(x, w, None, shape)
    torch.testing.assert_close(ours, plainly(x, w, torch.zeros(2, 4), shape))
    (found,) = torch.autograd.grad(ours.sum(), [w])
    assert found.isfinite().all()


@needs_kernel
def test_a_nan_is_not_lost_on_the_way():
    shape = ConvShape(1, 1, 6, 6, 1, 3, 3, 1, True, True)
    x = torch.zeros(1, 1, 6, 6, 1)
    x[0, 0, 2, 2] = float("nan")
    made = DirectConv.apply(x, torch.ones(1, 1, 1, 3, 3), torch.zeros(1, 1), shape)
    assert made.isnan().any()


@needs_kernel
@pytest.mark.parametrize("pool", [False, True])
def test_one_clients_nan_is_not_anothers(pool):
    """Vectors reach beyond the end of a client's numbers, where the next client's begin."""
    shape = ConvShape(3, 3, 5, 5, 2, 3, 3, 3, pool, True)
    x, w, b = torch.randn(3, 2, 5, 5, 3), torch.randn(3, 3, 2, 3, 3), torch.randn(3, 3)
    x[1] = float("nan")
    leaves = [leaf.requires_grad_() for leaf in (x, w, b)]
    made = DirectConv.apply(*leaves, shape)
    assert made[1].isnan().any()
    for found in (made, *torch.autograd.grad(made.sum(), leaves)):
        assert found[[0, 2]].isfinite().all()


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batch", [3, 9])
def test_grey_levels_are_what_they_are_scaled_to(batch, dtype):
    """To the bit, forward and back, as numbers laid out with the channels or the batch last."""
    shape = ConvShape(2, batch, 8, 9, 3, 3, 3, 4, True, True)
    levels = torch.randint(0, 256, (2, batch, 8, 9, 3), dtype=torch.uint8).permute(0, 4, 2, 3, 1)
    w, b = torch.randn(2, 4, 3, 3, 3, dtype=dtype), torch.randn(2, 4, dtype=dtype)
    numbers = scaled(levels, dtype)
    made, found = [], []
    for images in (levels, numbers, numbers.contiguous()):
        leaves = [leaf.clone().requires_grad_() for leaf in (w, b)]
        made.append(DirectConv.apply(images, *leaves, shape))
        found.append(torch.autograd.grad(made[-1].square().sum(), leaves))
    assert all(each.equal(made[0]) for each in made)
    assert all(a.equal(c) for each in found for a, c in zip(each, found[0], strict=True))


@needs_kernel
def test_images_that_leave_no_position_are_refused():
    shape = ConvShape(1, 1, 2, 6, 1, 3, 3, 1, False, False)
    with pytest.raises(RuntimeError, match="no convolution kernel for"):
        DirectConv.apply(torch.zeros(1, 1, 2, 6, 1), torch.zeros(1, 1, 1, 3, 3), torch.zeros(1, 1), shape)


@needs_kernel
@pytest.mark.parametrize(
    "order", [(0, 1, 2, 3, 4), (0, 1, 3, 4, 2), (0, 2, 3, 4, 1), (3, 0, 1, 2, 4)], ids=str
)
@pytest.mark.parametrize(
    ("batch", "dtype"), [(5, torch.float32), (13, torch.float32), (16, torch.float32), (13, torch.float64)]
)
def test_images_are_laid_out_with_the_batch_last(order, batch, dtype):
    images = torch.randn(2, batch, 3, 7, 5, dtype=dtype)
    laid = batch_last(images.permute(order).contiguous().permute(*np.argsort(order).tolist()))
    assert laid.is_contiguous()
    assert torch.equal(laid, images.permute(0, 2, 3, 4, 1))


def trainer(net=None, **acceleration) -> CohortTrainer:
    rng = np.random.default_rng(0)
    shape = (3, 32, 32)
    inputs, labels = rng.integers(0, 256, (48, *shape), dtype=np.uint8), rng.integers(0, 10, 48)
    examples = Examples(inputs, labels, inputs[:10], labels[:10], classes=10)
    return CohortTrainer(
        net or CifarCnn(),
        examples,
        tuple(np.split(np.arange(48), 4)),
        Training(local_epochs=1, batch_size=5),
        Acceleration(device="cpu", **acceleration),
        seed=1,
    )


def updates(made: CohortTrainer) -> torch.Tensor:
    chunks = list(made.train(made.initial(), np.arange(4), 0))
    order = np.argsort(np.concatenate([chunk.clients for chunk in chunks]))
    return torch.cat([chunk.updates for chunk in chunks])[order]


@needs_kernel
def test_training_with_the_kernel_and_with_torch_agree():
    ours = trainer(precision="float64")
    theirs = trainer(precision="float64", convolutions="torch")
    assert ours.plan.direct
    assert not theirs.plan.direct
    assert torch.allclose(updates(ours), updates(theirs), rtol=0, atol=1e-12)


def test_a_net_without_convolutions_compiles_nothing(fresh_kernel):
    assert not trainer(Mlp()).plan.direct
    assert kernel.cache_info().misses == 0


@pytest.fixture
def fresh_kernel() -> Iterator[None]:
    """Forgets the kernel before and after."""
    kernel.cache_clear()
    yield
    kernel.cache_clear()


def test_without_a_compiler_torch_does_it(fresh_kernel, monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(c_kernel.shutil, "which", lambda name: None)
    made = trainer()
    assert not made.plan.direct
    assert updates(made).isfinite().all()


def test_a_compiler_that_fails_is_told_of_and_torch_does_it(fresh_kernel, monkeypatch, tmp_path, caplog):
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    with caplog.at_level(logging.WARNING, logger="fdsim.learning"):
        assert not trainer().plan.direct
    assert "could not be compiled" in caplog.text


@needs_kernel
def test_it_is_compiled_once_and_kept(fresh_kernel, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert kernel() is not None
    kept = list((tmp_path / "fdsim").iterdir())
    kernel.cache_clear()
    assert kernel() is not None
    assert list((tmp_path / "fdsim").iterdir()) == kept
    assert len(kept) == 1


def _garbage(library: Path) -> None:
    content = bytearray(library.read_bytes())
    content[4096:8192] = bytes(range(256)) * 16
    library.write_bytes(content)


@needs_kernel
@pytest.mark.parametrize(
    "damage",
    [
        lambda library: os.truncate(library, 2000),
        lambda library: os.truncate(library, 0),
        _garbage,
        lambda library: shutil.copy(_ctypes.__file__, library),
    ],
    ids=["truncated", "empty", "garbage inside", "another library"],
)
def test_a_damaged_cache_is_noticed_and_compiled_again(damage, fresh_kernel, monkeypatch, tmp_path, caplog):
    """To load any of these ended the process with SIGBUS or SIGILL, or was a bug."""
    monkeypatch.setattr(c_kernel, "_prove", lambda library, dtype, prover: None)
    monkeypatch.setattr(c_kernel, "_FLAGS", ("-O0", "-march=native", "-shared", "-fPIC"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert kernel() is not None
    (kept,) = (tmp_path / "fdsim").iterdir()
    # Copied aside, since this process has the file itself in memory; damage goes to a file of its own.
    whole = kept.read_bytes()
    kept.unlink()
    kept.write_bytes(whole)
    damage(kept)
    kernel.cache_clear()
    with caplog.at_level(logging.WARNING, logger="fdsim.learning"):
        assert kernel() is not None
    assert "is damaged, and compiled again" in caplog.text
    assert [path.read_bytes() == whole for path in (tmp_path / "fdsim").iterdir()] == [True]


@needs_kernel
def test_a_kernel_that_this_processor_cannot_run_is_not_used(fresh_kernel, monkeypatch, tmp_path, caplog):
    source = tmp_path / "illegal.c"
    source.write_text("void forward(void) { __builtin_trap(); }\nvoid backward(void) { __builtin_trap(); }\n")
    monkeypatch.setattr(direct_conv, "_SOURCE", source)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with caplog.at_level(logging.WARNING, logger="fdsim.learning"):
        assert kernel() is None
    assert "torch's own are used" in caplog.text
    assert not (tmp_path / "fdsim").exists()


@needs_kernel
def test_the_compiler_may_have_options(fresh_kernel, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", f"{shutil.which('cc') or shutil.which('gcc')} -O2")
    assert kernel() is not None


def test_a_compiler_that_never_answers_is_given_up(fresh_kernel, monkeypatch, tmp_path, caplog):
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("CC", str(slow))
    monkeypatch.setattr(c_kernel, "_VERSION_S", 0.2)
    with caplog.at_level(logging.WARNING, logger="fdsim.learning"):
        assert kernel() is None
    assert "timed out" in caplog.text


@needs_kernel
def test_without_a_cache_nothing_is_left_behind(fresh_kernel, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    assert kernel() is not None
    assert list((tmp_path / "temporary").iterdir()) == []
    assert updates(trainer()).isfinite().all()


@needs_kernel
def test_a_cache_that_can_only_be_read_is_used(fresh_kernel, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert kernel() is not None
    kernel.cache_clear()

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(tempfile, "mkdtemp", refused)
    monkeypatch.setattr(Path, "mkdir", refused)
    assert kernel() is not None
