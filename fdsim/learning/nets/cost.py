"""What a net costs, measured on the module itself."""

from __future__ import annotations

import logging
from functools import cache

import torch
from torch import nn

from fdsim.errors import ScenarioError
from fdsim.learning.local.params import ParameterLayout
from fdsim.workload import NetCost

log = logging.getLogger("fdsim.learning")


def input_dtype(module: nn.Module) -> torch.dtype:
    """Return what a module takes: numbers of words if it embeds any, else numbers of its parameters' type."""
    if any(isinstance(layer, nn.Embedding) for layer in module.modules()):
        return torch.int64
    return next((parameter.dtype for parameter in module.parameters()), torch.float32)


def refuse_misfit(module: nn.Module, input_shape: tuple[int, ...], classes: int, *, name: str) -> None:
    """Raise an error where a net does not take an example of the data, or gives no score for some class of it."""
    ParameterLayout.of(module)
    sample = torch.zeros(1, *input_shape, dtype=input_dtype(module))
    try:
        with torch.no_grad():
            scores = module(sample)
    except (RuntimeError, ValueError, IndexError) as error:
        raise ScenarioError(
            "net",
            f"'{name}' does not take inputs of shape {tuple(input_shape)} ({str(error).splitlines()[0]})",
            "build its first layer from input_shape, which it is handed if it takes it",
        ) from error
    shape = tuple(scores.shape) if isinstance(scores, torch.Tensor) else None
    if shape is None or len(shape) != 2 or shape[0] != 1:
        given = type(scores).__name__ if shape is None else f"a tensor of shape {shape}"
        raise ScenarioError(
            "net", f"'{name}' gives {given} for one input", f"give scores of shape (inputs, {classes})"
        )
    if shape[1] < classes:
        raise ScenarioError(
            "net",
            f"'{name}' gives {shape[1]} outputs, the data have {classes} classes",
            "build its last layer from classes, which it is handed if it takes it",
        )
    if shape[1] > classes:
        _tell_once(f"net: '{name}' gives {shape[1]} outputs, the data have {classes} classes")


@cache
def _tell_once(text: str) -> None:
    log.warning(text)


def measured_cost(module: nn.Module, input_shape: tuple[int, ...]) -> NetCost:
    """Count operations (products alone, two for a multiply-add) and parameters by one pass of one sample.

    A net that cannot be trained, such as one with batch norm, is refused here: before a run, not in it.
    """
    # Brings all of triton along, 70 MB, which nets whose cost is known without a pass are spared.
    from torch.utils.flop_counter import FlopCounterMode

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
