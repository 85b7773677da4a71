"""The menu of kinds: short name → import path; 'module:Class' for a user's own.

A *component* is a frozen pydantic record whose fields are its TOML keys and whose methods are its behaviour. Every
exchangeable part of fdsim is a component of some *family*; nothing else in the code base looks kinds up.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

from fdsim.errors import CatalogueError

#: family → import path of its base class.
BASES: dict[str, str] = {
    "battery": "fdsim.devices.models.battery:Battery",
    "connectivity": "fdsim.devices.models.connectivity:Connectivity",
    "usage": "fdsim.devices.models.usage:Usage",
    "compute": "fdsim.devices.models.compute:Compute",
    "selection": "fdsim.devices.models.selection:Selection",
    "participation": "fdsim.participation.base:Participation",
    "data": "fdsim.data.datasets:DataSource",
    "partition": "fdsim.data.partition:Partition",
    "net": "fdsim.learning.nets.library:Net",
    "optimiser": "fdsim.learning.server_optimisers:ServerOptimiser",
    "strategy": "fdsim.strategies.base:Strategy",
}

#: family → short name → import path.
MENU: dict[str, dict[str, str]] = {
    "battery": {
        "linear": "fdsim.devices.models.battery:Linear",
        "tapered": "fdsim.devices.models.battery:Tapered",
        "ageing": "fdsim.devices.models.battery:Ageing",
        "mains": "fdsim.devices.models.battery:Mains",
        "replay": "fdsim.devices.models.replay:ReplayBattery",
    },
    "connectivity": {
        "always_on": "fdsim.devices.models.connectivity:AlwaysOn",
        "on_off": "fdsim.devices.models.connectivity:OnOff",
        "mobile": "fdsim.devices.models.connectivity:Mobile",
        "home_wifi": "fdsim.devices.models.connectivity:HomeWifi",
        "places": "fdsim.devices.models.places:Places",
        "replay": "fdsim.devices.models.replay:ReplayLink",
    },
    "usage": {
        "unattended": "fdsim.devices.models.usage:Unattended",
        "spells": "fdsim.devices.models.usage:Spells",
        "hourly": "fdsim.devices.models.usage_hours:Hourly",
        "nightly": "fdsim.devices.models.usage_hours:Nightly",
        "habits": "fdsim.devices.models.usage_habits:HabitUsage",
        "replay": "fdsim.devices.models.replay:ReplayUsage",
    },
    "compute": {
        "flops": "fdsim.devices.models.compute:Flops",
        "per_sample": "fdsim.devices.models.compute:PerSample",
    },
    "selection": {
        "all": "fdsim.devices.models.selection:All",
        "random": "fdsim.devices.models.selection:Random",
    },
    "participation": {
        "fixed_ratio": "fdsim.participation.fixed_ratio:FixedRatio",
        "bernoulli": "fdsim.participation.simple:Bernoulli",
        "markov": "fdsim.participation.simple:Markov",
        "periodic": "fdsim.participation.simple:Periodic",
        "scripted": "fdsim.participation.simple:Scripted",
        "trace": "fdsim.participation.replayed:Replayed",
    },
    "data": {
        "digits": "fdsim.data.datasets:Digits",
        "synthetic": "fdsim.data.datasets:Synthetic",
        "mnist": "fdsim.data.vision:Mnist",
        "fashion_mnist": "fdsim.data.vision:FashionMnist",
        "cifar10": "fdsim.data.vision:Cifar10",
        "cifar100": "fdsim.data.vision:Cifar100",
        "parquet": "fdsim.data.parquet:ParquetImages",
    },
    "partition": {
        "clustered": "fdsim.data.partition:Clustered",
        "shards": "fdsim.data.partition:Shards",
        "dirichlet": "fdsim.data.partition:Dirichlet",
        "iid": "fdsim.data.partition:Iid",
        "quantity_skew": "fdsim.data.partition:QuantitySkew",
        "by_file": "fdsim.data.partition:ByFile",
    },
    "net": {
        "mlp": "fdsim.learning.nets.library:Mlp",
        "mnist_cnn": "fdsim.learning.nets.library:MnistCnn",
        "cifar_cnn": "fdsim.learning.nets.library:CifarCnn",
        "pfl_cnn": "fdsim.learning.nets.library:PflCnn",
        "depthwise_cnn": "fdsim.learning.nets.library:DepthwiseCnn",
        "resnet": "fdsim.learning.nets.library:ResNet",
        "module": "fdsim.learning.nets.module_net:ModuleNet",
    },
    "optimiser": {
        "plain": "fdsim.learning.server_optimisers:Plain",
        "momentum": "fdsim.learning.server_optimisers:Momentum",
        "fedadam": "fdsim.learning.server_optimisers:FedAdam",
        "fedyogi": "fdsim.learning.server_optimisers:FedYogi",
        "fedadagrad": "fdsim.learning.server_optimisers:FedAdagrad",
    },
    "strategy": {
        "full": "fdsim.strategies.full:Full",
        "dropout": "fdsim.strategies.dropout:Dropout",
        "zero": "fdsim.strategies.zero:Zero",
        "stale": "fdsim.strategies.stale:Stale",
        "fdms": "fdsim.strategies.fdms:Fdms",
        "oracle_friends": "fdsim.strategies.oracle_friends:OracleFriends",
        "fedvarp": "fdsim.strategies.fedvarp:FedVarp",
    },
}


class Table(BaseModel):
    """A frozen record that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Component(Table):
    """A record of some family that a scenario chooses by `kind`."""

    family: ClassVar[str]
    kind: str = ""

    @model_validator(mode="before")
    @classmethod
    def _fill_kind(cls, value: Any) -> Any:
        if isinstance(value, dict) and not value.get("kind"):
            return {**value, "kind": kind_of(cls)}
        return value


class NestedError(ValueError):
    """Carries a chosen component's own validation errors up to the table that chose it."""

    def __init__(self, error: ValidationError, component: type[Component]) -> None:
        super().__init__(str(error))
        self.error, self.component = error, component


def kind_of(component: type[Component]) -> str:
    """Return the short name of a built-in class, or module:Class for anyone else's."""
    path = f"{component.__module__}:{component.__qualname__}"
    names = MENU.get(getattr(component, "family", ""), {})
    return next((name for name, target in names.items() if target == path), path)


def import_also_from(folder: Path) -> None:
    """Add `folder` to the end of the places where `module:Class` kinds are looked for."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _load(path: str, family: str) -> type[Component]:
    module_name, _, class_name = path.partition(":")
    try:
        import_also_from(Path.cwd())
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise CatalogueError(
                family,
                f"no module called '{module_name}'",
                f"'{path}' is looked for in the current folder, beside the scenario and among installed packages",
            ) from None
        raise
    found = getattr(module, class_name, None)
    if found is None:
        names = [name for name in vars(module) if isinstance(getattr(module, name), type)]
        raise CatalogueError(
            family, f"module '{module_name}' has no class '{class_name}'" + nearest(class_name, names)
        )
    return found  # type: ignore[no-any-return]


def merge(base: dict[str, Any], top: dict[str, Any]) -> dict[str, Any]:
    """Lay one table over another: tables merge key by key unless their `kind` differs, all else is replaced."""
    merged = dict(base)
    for key, value in top.items():
        below = merged.get(key)
        if isinstance(below, dict):
            # A bare kind is short for a table with nothing but that kind.
            table = {"kind": value} if isinstance(value, str) and "kind" in below else value
            if isinstance(table, dict) and table.get("kind", below.get("kind")) == below.get("kind"):
                value = merge(below, table)
        merged[key] = value
    return merged


def nearest(word: str, names: list[str]) -> str:
    """Return "(did you mean …?)" with the closest name, or the choices when none is close."""
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return f" (did you mean '{close[0]}'?)"
    return f" (there is: {', '.join(sorted(names))})" if names else ""


def find(family: str, kind: str) -> type[Component]:
    """Return the class that a kind names, built-in or a user's own."""
    base = _load(BASES[family], family)
    if ":" not in kind:
        if kind not in MENU[family]:
            article = "an" if family[0] in "aeiou" else "a"
            raise CatalogueError(
                family,
                f"no {family} called '{kind}'" + nearest(kind, list(MENU[family])),
                f"{article} {family} of your own is named 'module:Class'",
            )
        kind = MENU[family][kind]
    found = _load(kind, family)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise CatalogueError(
            family, f"'{kind}' is not a {family}", f"derive the class from {BASES[family].replace(':', '.')}"
        )
    return found


def build(family: str, table: Any) -> Component:
    """Make a component from a TOML table or a bare kind; return a component as it is."""
    if isinstance(table, Component) and table.family == family:
        return table
    if isinstance(table, str):
        table = {"kind": table}
    if not isinstance(table, dict):
        raise CatalogueError(
            family,
            f"{table!r} is not a table with a kind",
            f'write {{ kind = "{next(iter(MENU[family]))}" }}',
        )
    if not isinstance(table.get("kind"), str):
        raise CatalogueError(family, "the table has no kind", f"one of: {', '.join(sorted(MENU[family]))}")
    return find(family, table["kind"]).model_validate(table)


@dataclass(frozen=True)
class Chosen:
    """Marks a field as one component of a family: `battery: Annotated[Battery, Chosen("battery")]`."""

    family: str
    optional: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def pick(value: Any) -> Component | None:
            if value is None and self.optional:
                return None
            try:
                return build(self.family, value)
            except ValidationError as error:
                kind = value["kind"] if isinstance(value, dict) else value
                raise NestedError(error, find(self.family, kind)) from None
            except CatalogueError as error:
                # pydantic turns ValueErrors into located errors; the text already names the remedy.
                raise ValueError(f"{error.problem}" + (f". {error.remedy}" if error.remedy else "")) from None

        def dump(value: Component | None) -> dict[str, Any] | None:
            # The value's own class decides what is dumped, not the family's base class.
            return None if value is None else value.model_dump(mode="json", exclude_none=True)

        return core_schema.no_info_plain_validator_function(
            pick, serialization=core_schema.plain_serializer_function_ser_schema(dump)
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        # A placeholder: fdsim.scenario.schema fills the family's kinds in, once, under $defs.
        return {"x-fdsim-family": self.family}


def each_kind(families: list[str] | None = None) -> Iterator[tuple[str, str, str]]:
    """Yield (family, kind, first docstring line) for the whole menu."""
    for family in families or list(MENU):
        for kind in MENU[family]:
            yield family, kind, first_line(find(family, kind))


def first_line(thing: type | Callable[..., Any]) -> str:
    """Return the first line of a docstring."""
    return (thing.__doc__ or "").strip().split("\n")[0]
