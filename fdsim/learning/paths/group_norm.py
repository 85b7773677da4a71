"""Group norm on a CPU by the kernel of image_kernel.py, with the sum and the ReLU that follow it."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from fdsim.learning.paths.direct_conv import batch_last
from fdsim.learning.paths.image_kernel import call
from fdsim.learning.paths.kernel_calls import with_room


@dataclass(frozen=True)
class NormShape:
    """Group norm of a stack, and what follows it."""

    groups: int
    eps: float
    relu: bool


class NormNumbers(ctypes.Structure):
    """What the kernel is told."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("clients", "batch", "channels", "pixels", "groups", "relu")),
        ("eps", ctypes.c_double),
    )


def prove(dtype: torch.dtype) -> None:
    """Hold one group norm and its gradients against torch's own."""
    clients, batch, channels, height, width = 2, 3, 4, 5, 6

    def leaf(*sizes: int) -> torch.Tensor:
        values = torch.arange(math.prod(sizes), dtype=dtype).mul_(0.7).sin_()
        return values.view(sizes).requires_grad_()

    images, added = (leaf(clients, channels, height, width, batch) for _ in range(2))
    scale, shift = leaf(clients, channels), leaf(clients, channels)
    made: torch.Tensor = DirectNorm.apply(images, scale, shift, added, NormShape(2, 1e-5, relu=True))
    wanted = torch.stack(
        [
            functional.group_norm(images[c].permute(3, 0, 1, 2), 2, scale[c], shift[c]).permute(1, 2, 3, 0)
            for c in range(clients)
        ]
    )
    wanted = (wanted + added).relu()
    torch.testing.assert_close(made, wanted, rtol=1e-4, atol=1e-4)
    leaves = (images, scale, shift, added)
    found = torch.autograd.grad(made.square().sum(), leaves)
    torch.testing.assert_close(
        found, torch.autograd.grad(wanted.square().sum(), leaves), rtol=1e-4, atol=1e-4
    )


class DirectNorm(torch.autograd.Function):
    """Group norm of a stack, a tensor added to it unless it is None, and ReLU if the shape asks for it.

    Inputs and what is added [C, channels, H, W, B] in any layout, scale and shift [C, channels], contiguous, or both
    None, give [C, channels, H, W, B].
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: torch.Tensor,
        scale: torch.Tensor | None,
        shift: torch.Tensor | None,
        added: torch.Tensor | None,
        shape: NormShape,
    ) -> torch.Tensor:
        """Call the kernel."""
        inputs = batch_last(inputs.detach().permute(0, 4, 1, 2, 3))
        if added is not None:
            added = batch_last(added.detach().permute(0, 4, 1, 2, 3))
        clients, channels, height, width, batch = inputs.shape
        told = NormNumbers(clients, batch, channels, height * width, shape.groups, shape.relu, shape.eps)
        made = with_room(tuple(inputs.shape), inputs)
        moments = inputs.new_empty(clients, shape.groups, 2, batch)
        call("norm_forward", inputs.dtype, told, inputs, scale, shift, added, made, moments)
        ctx.told = told
        ctx.save_for_backward(inputs, scale, moments, made if shape.relu else None)
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Call the kernel's backward pass."""
        inputs, scale, moments, made = ctx.saved_tensors
        came = batch_last(gradients[0].permute(0, 4, 1, 2, 3))
        of_inputs = with_room(tuple(inputs.shape), inputs)
        of_scale, of_shift = (
            (None, None) if scale is None else (torch.empty_like(scale), torch.empty_like(scale))
        )
        of_added = with_room(tuple(inputs.shape), inputs) if ctx.needs_input_grad[3] else None
        call(
            *("norm_backward", inputs.dtype, ctx.told, inputs, scale, moments, made, came),
            *(of_inputs, of_scale, of_shift, of_added),
        )
        return of_inputs, of_scale, of_shift, of_added, None
