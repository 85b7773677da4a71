"""What a net costs, measured on the module itself."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fdsim.learning.local.params import ParameterLayout
from fdsim.workload import NetCost


def input_dtype(module: nn.Module) -> torch.dtype:
    """Return what a module takes: numbers of words if it embeds any, else numbers of its parameters' type."""
    if any(isinstance(layer, nn.Embedding) for layer in module.modules()):
        return torch.int64
    return next((parameter.dtype for parameter in module.parameters()), torch.float32)


def measured_cost(module: nn.Module, input_shape: tuple[int, ...]) -> NetCost:
    """Count operations (products alone, two for a multiply-add) and parameters by one pass of one sample.

    A net that cannot be trained, such as one with batch norm, is refused here: before a run, not in it.
    """
    ParameterLayout.of(module)
    sample = torch.zeros(1, *input_shape, dtype=input_dtype(module))
    depthwise: list[float] = []

    def note(layer: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        if isinstance(layer, nn.Conv2d) and layer.groups == layer.in_channels > 1:
            depthwise.append(2.0 * output.numel() * layer.weight[0].numel())

    hooks = [layer.register_forward_hook(note) for layer in module.modules() if isinstance(layer, nn.Conv2d)]
    try:
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            module(sample)
    finally:
        for hook in hooks:
            hook.remove()
    flops = float(counter.get_total_flops())
    parameters = sum(parameter.numel() for parameter in module.parameters())
    return NetCost(flops, sum(depthwise) / flops if flops else 0.0, parameters)
