"""Convolutions with padding and strides on a CPU by the kernel of image_kernel.py."""

from __future__ import annotations

import ctypes
import math
from dataclasses import astuple, dataclass
from functools import lru_cache
from typing import Any

import torch

from fdsim.learning.paths.direct_conv import batch_last
from fdsim.learning.paths.image_kernel import call
from fdsim.learning.paths.kernel_calls import roomy, with_room


@dataclass(frozen=True)
class PaddedShape:
    """One convolution of a stack: C clients, B images each of inputs × H × W."""

    clients: int
    batch: int
    height: int
    width: int
    inputs: int
    rows: int
    columns: int
    outputs: int
    padding_down: int
    padding_across: int
    stride_down: int
    stride_across: int

    @property
    def made(self) -> tuple[int, int, int, int, int]:
        """The shape of what comes out, [C, outputs, height, width, B]."""
        high = (self.height + 2 * self.padding_down - self.rows) // self.stride_down + 1
        wide = (self.width + 2 * self.padding_across - self.columns) // self.stride_across + 1
        return self.clients, self.outputs, high, wide, self.batch

    @property
    def numbers(self) -> ctypes.Array[ctypes.c_int64]:
        """What the kernel reads."""
        return _numbers(self)


def prove(dtype: torch.dtype) -> None:
    """Hold convolutions, with and without strides, and their gradients against torch's own."""
    clients, batch, inputs, outputs, height, width, side = 2, 3, 9, 10, 6, 7, 3

    def leaf(*sizes: int) -> torch.Tensor:
        values = torch.arange(math.prod(sizes), dtype=dtype).mul_(0.7).sin_()
        return values.view(sizes).requires_grad_()

    images = leaf(clients, inputs, height, width, batch)
    weights, bias = leaf(clients, outputs, inputs, side, side), leaf(clients, outputs)
    for stride in (1, 2):
        shape = PaddedShape(
            *(clients, batch, height, width, inputs, side, side, outputs), *(1, 1, stride, stride)
        )
        made: torch.Tensor = PaddedConv.apply(images, weights, bias, shape)
        wanted = torch.stack(
            [
                torch.nn.functional.conv2d(
                    images[c].permute(3, 0, 1, 2), weights[c], bias[c], stride, 1
                ).permute(1, 2, 3, 0)
                for c in range(clients)
            ]
        )
        close = 1e-4 if dtype == torch.float32 else 1e-9
        torch.testing.assert_close(made, wanted, rtol=close, atol=close)
        leaves = (images, weights, bias)
        found = torch.autograd.grad(made.sin().sum(), leaves)
        torch.testing.assert_close(
            found, torch.autograd.grad(wanted.sin().sum(), leaves), rtol=close, atol=close
        )


class PaddedConv(torch.autograd.Function):
    """Convolution and bias of a stack.

    Inputs [C, inputs, H, W, B] in any layout, weights [C, outputs, inputs, rows, columns] and, unless it is None, bias
    [C, outputs], both contiguous, give [C, outputs, height, width, B].
    """

    @staticmethod
    def forward(
        ctx: Any, inputs: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor | None, shape: PaddedShape
    ) -> torch.Tensor:
        """Call the kernel."""
        inputs = batch_last(inputs.detach().permute(0, 4, 1, 2, 3))
        made = with_room(shape.made, weights)
        call("conv_forward", weights.dtype, shape.numbers, inputs, weights, bias, made)
        ctx.shape, ctx.biased = shape, bias is not None
        ctx.save_for_backward(inputs, weights)
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Call the kernel's backward pass."""
        inputs, weights = ctx.saved_tensors
        shape: PaddedShape = ctx.shape
        came = roomy(batch_last(gradients[0].permute(0, 4, 1, 2, 3)))
        of_weights = torch.empty_like(weights)
        of_bias = weights.new_empty(shape.clients, shape.outputs) if ctx.biased else None
        of_inputs = with_room(tuple(inputs.shape), inputs) if ctx.needs_input_grad[0] else None
        call(
            *("conv_backward", weights.dtype, shape.numbers, inputs, weights, came),
            *(of_weights, of_bias, of_inputs),
        )
        return of_inputs, of_weights, of_bias, None


@lru_cache(maxsize=256)
def _numbers(shape: PaddedShape) -> ctypes.Array[ctypes.c_int64]:
    """Return a shape as the kernel reads it."""
    if min(shape.made) < 1:
        raise RuntimeError(f"there is no convolution kernel for {shape}")
    return (ctypes.c_int64 * 12)(*astuple(shape))
