"""How a cohort is trained: on which path, in stacks of what size, by how many workers.

The choice follows fixed rules, calibrated by `fdsim bench engine`, and no stopwatch: a choice that
could differ from run to run could change the last bits of a result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from fdsim.errors import ScenarioError
from fdsim.learning.cohort.memory import free_bytes
from fdsim.learning.config.acceleration import Acceleration
from fdsim.learning.paths.stacking import kernels_of, stack_of
from fdsim.workload import NetCost

#: Above this many parameters a CPU trains clients one by one: more such nets do not fit its caches.
_LARGE_NET_PARAMETERS = 400_000
#: Below this much work in a step of the whole cohort, a second thread costs more than it gains.
_SMALL_STEP_FLOPS = 30e6
#: Stacks larger than this gain nothing more on a CPU.
_CPU_STACK_SIZE = 10
#: The fraction of a GPU's free memory, less the data set, that a stack may fill: the rest is for what strategies
#: store, for the libraries' workspaces, and for an estimate that is too low.
_MEMORY_FRAC = 0.6


@dataclass(frozen=True)
class TrainingPlan:
    """How the clients of a run are trained."""

    path: Literal["loop", "vmap", "stacked"]
    stack_size: int
    workers: int
    compiled: bool = False
    direct: bool = False
    """Whether convolutions are computed by kernels of our own; see direct_conv.py and padded_conv.py."""


@dataclass(frozen=True)
class CohortSpec:
    """What a plan depends on: the net, the size of a step, and how many clients a round can have."""

    module: nn.Module
    cost: NetCost
    batch_size: int
    client_bytes: float
    clients: int
    data_bytes: float = 0.0
    """Of the data set, which is moved to each accelerator after the plan is made."""


def plan_for(
    acceleration: Acceleration, spec: CohortSpec, accelerators: tuple[torch.device, ...]
) -> TrainingPlan:
    """Choose path, stack size and workers, as far as the `[acceleration]` table leaves them open."""
    on_cpu = accelerators[0].type == "cpu"
    # On CPUs compiled stacks measured no faster than eager ones, after minutes of compiling.
    compiled = accelerators[0].type == "cuda" if acceleration.compile == "auto" else acceleration.compile
    maybe = on_cpu and acceleration.path in ("auto", "stacked")
    direct = maybe and _direct(acceleration, spec.module, compiled=compiled)
    path = _path(acceleration, spec, on_cpu=on_cpu, direct=direct)
    direct = direct and path == "stacked"
    workers = len(accelerators)
    step_flops = 3.0 * spec.cost.forward_flops * spec.batch_size * spec.clients
    if on_cpu and step_flops >= _SMALL_STEP_FLOPS:
        workers = min(torch.get_num_threads(), spec.clients)
    if isinstance(acceleration.stack_size, int):
        return TrainingPlan(path, acceleration.stack_size, workers, compiled, direct)
    if on_cpu or accelerators[0].type == "meta":
        size = _cpu_stack_size(path, spec, workers)
    else:
        room = min(free_bytes(each) for each in accelerators) - spec.data_bytes
        size = max(1, int(_MEMORY_FRAC * room / spec.client_bytes))
    return TrainingPlan(path, min(size, max(1, -(-spec.clients // workers))), workers, compiled, direct)


def _cpu_stack_size(path: str, spec: CohortSpec, workers: int) -> int:
    if path == "loop" or spec.cost.parameters > _LARGE_NET_PARAMETERS:
        return 1
    return _CPU_STACK_SIZE if workers > 1 else 2 * _CPU_STACK_SIZE


def _direct(acceleration: Acceleration, module: nn.Module, *, compiled: bool) -> bool:
    # torch.compile cannot trace kernels, and they have no half precision.
    if acceleration.convolutions != "auto" or acceleration.product_dtype is not None or compiled:
        return False
    kernels = kernels_of(module)
    return bool(kernels) and all(kernel(acceleration.dtype) is not None for kernel in kernels)


def _path(
    acceleration: Acceleration, spec: CohortSpec, *, on_cpu: bool, direct: bool
) -> Literal["loop", "vmap", "stacked"]:
    stackable = stack_of(spec.module) is not None
    if acceleration.path == "stacked" and not stackable:
        raise ScenarioError(
            "acceleration.path",
            "'stacked' does not support all layers of this net",
            'choose path = "auto" or "vmap", or build the net as an nn.Sequential of supported layers',
        )
    if acceleration.path != "auto":
        return acceleration.path
    if on_cpu and spec.cost.parameters > _LARGE_NET_PARAMETERS:
        # The kernel's way back through pooling, and weights that move at once, gain even without company.
        return "stacked" if direct else "loop"
    if stackable:
        return "stacked"
    # On a CPU vmap gains little or nothing over the loop for convolutions; on a GPU it saves kernel launches.
    return "loop" if on_cpu else "vmap"
