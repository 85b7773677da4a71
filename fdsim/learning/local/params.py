"""The flat view of a net's parameters: one vector [P], in the order of `module.parameters()`."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from fdsim.errors import ScenarioError


@dataclass(frozen=True)
class ParameterSlot:
    """Where one parameter tensor lies in the flat vector."""

    name: str
    shape: torch.Size
    start: int

    @property
    def size(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)

    def of(self, flat: torch.Tensor) -> torch.Tensor:
        """Return the parameter as a view of the flat vector [P]."""
        return flat[self.start : self.start + self.size].view(self.shape)


@dataclass(frozen=True)
class ParameterLayout:
    """Where all parameter tensors of a net lie."""

    slots: tuple[ParameterSlot, ...]

    @classmethod
    def of(cls, module: torch.nn.Module) -> ParameterLayout:
        """Read the layout off a module; buffers that change while training are not part of an update."""
        found, start = [], 0
        for name, parameter in module.named_parameters():
            found.append(ParameterSlot(name, parameter.shape, start))
            start += parameter.numel()
        for name, layer in module.named_modules():
            if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm):
                raise ScenarioError(
                    "net",
                    f"layer '{name}' ({type(layer).__name__}) keeps running averages, which are not part of an update",
                    "use GroupNorm or LayerNorm, as is usual in federated learning",
                )
        return cls(tuple(found))

    @property
    def size(self) -> int:
        """P."""
        return sum(slot.size for slot in self.slots)

    def by_name(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return all parameters as views of the flat vector."""
        return {slot.name: slot.of(flat) for slot in self.slots}


def flat_of(module: torch.nn.Module) -> torch.Tensor:
    """Copy a module's parameters into one vector [P]."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()])
