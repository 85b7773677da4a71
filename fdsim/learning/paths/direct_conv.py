"""Convolutions of small nets on a CPU by our own C kernel, which is compiled at first use.

Where there is no compiler, or it fails, `kernel` returns None and torch's own convolutions are used: the same
numbers up to rounding, more slowly.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import astuple, dataclass
from enum import IntEnum
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch

from fdsim.kernels.c_kernel import load
from fdsim.learning.paths.kernel_calls import ROOM_BYTES, Argument, call_kernel, roomy, with_room

_SOURCE = Path(__file__).with_name("direct_conv.c")


@dataclass(frozen=True)
class ConvShape:
    """One convolution of a stack: C clients, B images each of inputs × H × W, and what follows it."""

    clients: int
    batch: int
    height: int
    width: int
    inputs: int
    rows: int
    columns: int
    outputs: int
    pool: bool
    relu: bool

    @property
    def made(self) -> tuple[int, int, int, int, int]:
        """The shape of what comes out, [C, outputs, height, width, B]."""
        sums = (self.height - self.rows + 1, self.width - self.columns + 1)
        high, wide = (side // 2 if self.pool else side for side in sums)
        return self.clients, self.outputs, high, wide, self.batch


@cache
def kernel(dtype: torch.dtype = torch.float32) -> ctypes.CDLL | None:
    """Return the kernel for a type of numbers, or None where it cannot be compiled or does not work."""
    return load(_SOURCE, dtype, prover=__name__, purpose="convolutions")


def prove(library: str, number: str) -> None:
    """Hold one convolution and its gradients by a library against torch's own; raise if they differ."""
    loaded, dtype = ctypes.CDLL(library), getattr(torch, number)
    globals()["kernel"] = lambda _: loaded  # this process is for nothing else
    clients, batch, inputs, outputs, height, width, side = 2, 3, 2, 5, 9, 10, 3
    shape = ConvShape(clients, batch, height, width, inputs, side, side, outputs, pool=True, relu=True)

    def leaf(*sizes: int) -> torch.Tensor:
        values = torch.arange(math.prod(sizes), dtype=dtype).mul_(0.7).sin_()
        return values.view(sizes).requires_grad_()

    images = leaf(clients, inputs, height, width, batch)
    weights, bias = leaf(clients, outputs, inputs, side, side), leaf(clients, outputs)
    made: torch.Tensor = DirectConv.apply(images, weights, bias, shape)
    wanted = torch.stack(
        [
            torch.nn.functional.max_pool2d(
                torch.nn.functional.conv2d(images[c].permute(3, 0, 1, 2), weights[c], bias[c]).relu(), 2
            ).permute(1, 2, 3, 0)
            for c in range(clients)
        ]
    )
    torch.testing.assert_close(made, wanted)
    leaves = (images, weights, bias)
    found = torch.autograd.grad(made.square().sum(), leaves)
    torch.testing.assert_close(found, torch.autograd.grad(wanted.square().sum(), leaves))


def vector_bits() -> int | None:
    """Return the width of the kernel's vectors, or None where there is no kernel."""
    library = kernel()
    return None if library is None else int(library.vector_bits())


def batch_last(images: torch.Tensor) -> torch.Tensor:
    """Lay [C, B, channels, H, W] out as [C, channels, H, W, B]; as it is if it lies so already."""
    laid = images.permute(0, 2, 3, 4, 1)
    if laid.is_contiguous():
        return laid
    clients, batch, channels, height, width = images.shape
    planes = images.is_contiguous()
    if images.requires_grad or not (planes or images.permute(0, 1, 3, 4, 2).is_contiguous()):
        return laid.contiguous()
    made = with_room(tuple(laid.shape), images)
    _kernel_for(images.dtype).batch_last(
        *map(ctypes.c_void_p, (images.data_ptr(), made.data_ptr())),
        *map(ctypes.c_int64, (clients, batch, channels, height * width, planes)),
    )
    return made


class _ImageLayout(IntEnum):
    """How the kernel finds the images of a stack."""

    BATCH_LAST = 0
    CHANNELS_LAST = 1
    LEVELS = 2
    """The same, but grey levels, which become numbers in [−1, 1]."""

    @classmethod
    def of(cls, images: torch.Tensor, shape: ConvShape) -> _ImageLayout:
        """Return how [C, inputs, H, W, B] may be left; the way back without pooling needs the batch last."""
        if images.dtype == torch.uint8:
            return cls.LEVELS
        as_from_data = shape.pool and images.permute(0, 4, 2, 3, 1).is_contiguous()
        return cls.CHANNELS_LAST if as_from_data else cls.BATCH_LAST

    @property
    def number(self) -> ctypes.c_int64:
        """What the kernel is told."""
        return ctypes.c_int64(self)


class DirectConv(torch.autograd.Function):
    """Convolution, bias, 2×2 max-pooling and ReLU of a stack, as far as the shape asks for them.

    Inputs [C, inputs, H, W, B] in any layout, or grey levels with their channels last, weights
    [C, outputs, inputs, rows, columns] and, unless it is None, bias [C, outputs], both contiguous, give
    [C, outputs, height, width, B].
    """

    @staticmethod
    def forward(
        ctx: Any, inputs: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor | None, shape: ConvShape
    ) -> torch.Tensor:
        """Call the kernel."""
        layout = _ImageLayout.of(inputs, shape)
        if layout is _ImageLayout.BATCH_LAST:
            inputs = roomy(batch_last(inputs.detach().permute(0, 4, 1, 2, 3)))
        made = with_room(shape.made, weights)
        chosen = torch.empty(made.numel() + ROOM_BYTES, dtype=torch.uint8)
        call("forward", weights.dtype, _numbers(shape), inputs, layout.number, weights, bias, made, chosen)
        ctx.shape, ctx.biased, ctx.layout = shape, bias is not None, layout
        ctx.save_for_backward(inputs, weights, chosen)
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Call the kernel's backward pass."""
        inputs, weights, chosen = ctx.saved_tensors
        shape: ConvShape = ctx.shape
        of_weights = torch.empty_like(weights)
        of_bias = weights.new_empty(shape.clients, shape.outputs) if ctx.biased else None
        wanted = ctx.needs_input_grad[0]
        if shape.pool:
            came = gradients[0] if _steps(gradients[0]) else gradients[0].contiguous()
            sizes = (shape.clients, shape.batch, shape.height, shape.width, shape.inputs)
            channels_last = with_room(sizes, weights) if wanted else None
            call(
                *("pooled_backward", weights.dtype, _numbers(shape), inputs, ctx.layout.number, weights),
                *(came, _steps(came), chosen, of_weights, of_bias, channels_last),
            )
            of_inputs = None if channels_last is None else channels_last.permute(0, 4, 2, 3, 1)
        else:
            came = roomy(batch_last(gradients[0].permute(0, 4, 1, 2, 3)))
            of_inputs = with_room(tuple(inputs.shape), inputs) if wanted else None
            call(
                *("backward", weights.dtype, _numbers(shape), inputs, weights, came, chosen),
                *(of_weights, of_bias, of_inputs),
            )
        return of_inputs, of_weights, of_bias, None


def _steps(images: torch.Tensor) -> ctypes.Array[ctypes.c_int64] | None:
    """Return how far apart images, channels and pixels of [C, channels, H, W, B] are; None where rows have gaps."""
    clients, _, height, width, _ = images.shape
    client, channel, row, pixel, image = images.stride()
    if width == 1:
        pixel = row
    if (clients > 1 and client * clients != images.numel()) or (height > 1 and row != width * pixel):
        return None
    return (ctypes.c_int64 * 3)(image, channel, pixel)


def _kernel_for(dtype: torch.dtype) -> ctypes.CDLL:
    library = kernel(dtype)
    if library is None:
        raise RuntimeError(f"there is no convolution kernel for {dtype}")
    return library


@lru_cache(maxsize=256)
def _numbers(shape: ConvShape) -> ctypes.Array[ctypes.c_int64]:
    """Return a shape as the kernel reads it."""
    if min(shape.made) < 1:
        raise RuntimeError(f"there is no convolution kernel for {shape}")
    return (ctypes.c_int64 * 10)(*astuple(shape))


def call(name: str, dtype: torch.dtype, *arguments: Argument) -> None:
    """Call a function of the kernel for a type of numbers."""
    call_kernel(_kernel_for(dtype), name, *arguments)
