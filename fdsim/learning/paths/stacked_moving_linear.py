"""Linear layers of a stack whose weights move on the way back, where a step takes nothing but the gradient."""

from __future__ import annotations

from typing import Any

import torch

from fdsim.learning.local.sgd import Move
from fdsim.learning.paths.stacked_layers import Leaves, Signal, StackedLayer, StackedLinear


class StackedMovingLinear(StackedLayer):
    """C linear layers as one batched product; their weights are laid out as torch's own, [C, out, in]."""

    def __init__(self, layer: StackedLinear) -> None:
        self.parameters = layer.parameters

    def stack(self, parameters: Leaves, clients: int) -> Leaves:
        weight = parameters[0].expand(clients, -1, -1).clone()
        return [weight, *(bias.repeat(clients, 1, 1) for bias in parameters[1:])]

    def forward(self, signal: Signal, leaves: Leaves) -> Signal:
        signal = signal.as_rows()
        rows = signal.values.flatten(1, -2)
        weights, bias = leaves[0], leaves[1] if len(leaves) > 1 else None
        if signal.move is not None and rows.requires_grad:
            made: torch.Tensor = _Moving.apply(rows, weights.detach(), bias, signal.move)
        else:
            made = _multiplied(rows, weights, bias)
        return signal.then(made.view(*signal.values.shape[:-1], made.shape[-1]))


def _multiplied(rows: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    turned = weights.transpose(1, 2)
    return torch.bmm(rows, turned) if bias is None else torch.baddbmm(bias, rows, turned)


class _Moving(torch.autograd.Function):
    """Subtracts the gradient of weights from them as it is computed: it is neither written nor read again.

    Rows [C, B, in], weights [C, out, in] and, unless it is None, bias [C, 1, out] give [C, B, out].
    """

    @staticmethod
    def forward(
        ctx: Any, rows: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor | None, move: Move
    ) -> torch.Tensor:
        """Multiply."""
        ctx.save_for_backward(rows)
        # Not saved as a tensor that must not change: it does, in this very layer's backward pass.
        ctx.weights, ctx.biased, ctx.move = weights, bias is not None, move
        return _multiplied(rows, weights, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients of rows and bias, and move the weights."""
        (rows,), came, count = ctx.saved_tensors, gradients[0], ctx.move.clients
        of_rows = torch.bmm(came, ctx.weights)
        of_bias = came.sum(dim=1, keepdim=True) if ctx.biased else None
        ctx.weights[:count].baddbmm_(came[:count].transpose(1, 2), rows[:count], alpha=-ctx.move.rate)
        return of_rows, None, of_bias, None
