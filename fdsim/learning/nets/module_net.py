"""A user's own nn.Module as a net."""

from __future__ import annotations

import inspect
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic import Field, field_validator, model_validator

from fdsim.catalogue import nearest, own_code_left, own_module
from fdsim.errors import ScenarioError
from fdsim.learning.nets.layers import Shape
from fdsim.learning.nets.library import Net

if TYPE_CHECKING:
    import torch


class ModuleNet(Net):
    """Your own nn.Module class, named by its import path; it is passed input_shape and classes if it accepts them."""

    path: str = Field(
        description="module:Class; looked for beside the scenario, then in the current folder; "
        "an installed package of that name comes first"
    )
    arguments: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of the class")

    @field_validator("path")
    @classmethod
    def _exists(cls, path: str) -> str:
        if not own_code_left():
            _class_of(path)
        return path

    @model_validator(mode="after")
    def _found(self) -> ModuleNet:
        # Kept from when the scenario is read, when the folder beside it can be imported from.
        if not own_code_left():
            _ = self._class
        return self

    @cached_property
    def _class(self) -> Any:
        return _class_of(self.path)

    @cached_property
    def _takes(self) -> frozenset[str]:
        parameters = inspect.signature(self._class).parameters.values()
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            return frozenset({"input_shape", "classes"})
        return frozenset(parameter.name for parameter in parameters)

    def module(self, input_shape: Shape, classes: int) -> torch.nn.Module:
        known = {"input_shape": input_shape, "classes": classes}
        given = {name: value for name, value in known.items() if name in self._takes} | self.arguments
        try:
            return self._class(**given)  # type: ignore[no-any-return]
        except TypeError as error:
            raise ScenarioError(
                "net.arguments", f"'{self.path}' cannot be constructed: {error}", "set its arguments"
            ) from error


def _class_of(path: str) -> Any:
    """Find the class; a ValueError, so that the scenario's reader can say where the key is."""
    module_name, _, class_name = path.partition(":")
    if not class_name:
        raise ValueError(f"'{path}' is not of the form module:Class")
    try:
        module = own_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name + ".").startswith(error.name + "."):
            raise
        raise ValueError(
            f"no module called '{module_name}' beside the scenario, in the current folder or installed"
        ) from None
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        classes = [name for name, value in vars(module).items() if isinstance(value, type)]
        raise ValueError(f"module '{module_name}' has no class '{class_name}'" + nearest(class_name, classes))
    if not any(base.__module__.startswith("torch.nn") for base in found.__mro__):
        raise ValueError(f"'{path}' is not an nn.Module")
    return found
