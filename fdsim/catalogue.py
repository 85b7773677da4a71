"""The menu of kinds: short name → import path; 'module:Class' for a user's own.

A *component* is a frozen pydantic record whose fields are its TOML keys and whose methods are its behaviour. Every
exchangeable part of fdsim is a component of some *family*; nothing else in the code base looks kinds up.
"""

from __future__ import annotations

import difflib
import importlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin
from urllib.parse import quote

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema, InitErrorDetails, core_schema

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
    },
    "connectivity": {
        "always_on": "fdsim.devices.models.connectivity:AlwaysOn",
        "on_off": "fdsim.devices.models.connectivity:OnOff",
        "mobile": "fdsim.devices.models.connectivity:Mobile",
        "home_wifi": "fdsim.devices.models.connectivity:HomeWifi",
        "replay": "fdsim.devices.models.replay:ReplayLink",
    },
    "usage": {
        "unattended": "fdsim.devices.models.usage:Unattended",
        "spells": "fdsim.devices.models.usage:Spells",
        "hourly": "fdsim.devices.models.usage_hours:Hourly",
        "nightly": "fdsim.devices.models.usage_hours:Nightly",
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
        "fdms_memory": "fdsim.strategies.fdms_memory:FdmsMemory",
        "oracle_friends": "fdsim.strategies.oracle_friends:OracleFriends",
        "fedvarp": "fdsim.strategies.fedvarp:FedVarp",
    },
}

_BUILT_IN = frozenset([*BASES.values(), *(path for kinds in MENU.values() for path in kinds.values())])


class Table(BaseModel):
    """A frozen record that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _truth_is_no_number(cls, given: Any) -> Any:
        """Refuse true for 1, which pydantic would take."""
        wrong = [
            InitErrorDetails(type="float_type" if float in wanted else "int_type", loc=(name,), input=value)
            for name, value in (given.items() if isinstance(given, dict) else ())
            if name in cls.model_fields and _has_truth(value)
            if (wanted := _plain_types(cls.model_fields[name].annotation)) & {int, float}
            if not wanted & {bool, object, Any}
        ]
        if wrong:
            raise NestedError(ValidationError.from_exception_data(cls.__name__, wrong), cls)
        return given


def _has_truth(value: Any) -> bool:
    return isinstance(value, bool) or (
        isinstance(value, list | tuple) and any(isinstance(each, bool) for each in value)
    )


def _plain_types(annotation: Any) -> set[Any]:
    """Return the types of which an annotation is made."""
    inner = get_args(annotation)
    if get_origin(annotation) is Literal:
        return {type(value) for value in inner}
    return {each for part in inner for each in _plain_types(part)} if inner else {annotation}


#: What a name may not hold: anything but letters, digits, spaces and a few signs, or a dot or space at an end.
_NOT_PLAIN = re.compile(r"[^\w \-.,+()=%@&#'~]|^[ .]|[ .]$")
#: Bytes of a name with everything but ASCII spelt %XX, as in the folder of a strategy's tables.
_NAME_BYTES = 180


def plain_name(name: str) -> str:
    """Return a name that is plain words, as names of runs, studies and strategies must be; '' is left to the field."""
    if own_code_left():
        return name  # of a run that exists: shown as it is
    wrong = _NOT_PLAIN.search(name)
    if wrong is not None:
        raise ValueError(
            f"{name[:60]!r} is not a plain name: {wrong[0]!r} may not be there. "
            "A name is made of letters, digits, spaces and - _ . , + ( ) = % @ & # ' ~"
        )
    if len(quote(name).encode()) > _NAME_BYTES:
        raise ValueError(f"'{name[:40]}…' is too long for a name. Use at most about 60 characters")
    return name


#: A name that may become that of a file or folder.
PlainName = Annotated[str, AfterValidator(plain_name)]


class Component(Table):
    """A record of some family that a scenario chooses by `kind`."""

    family: ClassVar[str]
    kind: str = Field("", description="which of the family it is, or module:Class for one of your own")

    @model_validator(mode="before")
    @classmethod
    def _fill_kind(cls, value: Any) -> Any:
        if isinstance(value, dict) and not value.get("kind"):
            return {**value, "kind": kind_of(cls)}
        return value


class NestedError(ValueError):
    """Carries a table's own validation errors up to the one that it is part of."""

    def __init__(self, error: ValidationError, component: type[Table]) -> None:
        super().__init__(str(error))
        self.error, self.component = error, component


def kind_of(component: type[Component]) -> str:
    """Return the short name of a built-in class, or module:Class for anyone else's."""
    path = f"{component.__module__}:{component.__qualname__}"
    names = MENU.get(getattr(component, "family", ""), {})
    return next((name for name, target in names.items() if target == path), path)


@dataclass(frozen=True)
class OwnCode:
    """What becomes of `module:Class` kinds: imported, refused, or left as the tables they are.

    A scenario file is code, so its kinds are imported; a run folder is data, so those it names are left. With `folder`
    they are imported from that folder alone.
    """

    policy: Literal["import", "refuse", "leave"] = "import"
    folder: Path | None = None


_own_code: ContextVar[OwnCode] = ContextVar("own_code", default=OwnCode())  # noqa: B039 (frozen)
#: Where modules of the user's own are looked for, after the current folder; the latest first.
_folders: list[Path] = []
#: Name of a top-level module of the user's own → its file or folder, and the folder it was found in.
_own_modules: dict[str, tuple[str, str]] = {}


@contextmanager
def own_code(chosen: OwnCode | None) -> Iterator[None]:
    """Treat `module:Class` kinds as `chosen` says for as long as the context lasts; None changes nothing."""
    token = _own_code.set(chosen or _own_code.get())
    try:
        yield
    finally:
        _own_code.reset(token)


def own_code_left() -> bool:
    """Whether `module:Class` kinds are to be left as they are, without a look at the class."""
    return _own_code.get().policy == "leave"


def import_also_from(folder: Path) -> None:
    """Look for the modules of `module:Class` kinds in `folder` too; sys.path stays as it is."""
    if folder in _folders:
        _folders.remove(folder)
    _folders.insert(0, folder)


def own_folders() -> list[Path]:
    """Return the folders in which modules of the user's own are looked for, the first one first."""
    chosen = _own_code.get().folder
    return [chosen.resolve()] if chosen is not None else [*_folders, Path.cwd()]


def own_module(name: str) -> ModuleType:
    """Import a module that a scenario names: an installed one, or else the user's own, by its file.

    Nothing but the modules that scenarios name, and what these import themselves, is ever taken from the user's
    folders: a tensorboard.py beside a scenario is nobody's tensorboard.
    """
    if _own_code.get().policy == "refuse":
        raise CatalogueError(
            "--no-code",
            f"the scenario names code of its own, '{name}'",
            "leave out --no-code if you trust it",
        )
    if not all(part.isidentifier() for part in name.split(".")):
        raise CatalogueError(
            "kind", f"'{name}' is not the name of a module", "name a file module.py as module:Class"
        )
    top = name.partition(".")[0]
    try:
        if top in _own_modules or (top not in sys.modules and find_spec(top) is None):
            _load_own(top)
        return importlib.import_module(name)
    except SystemExit as stop:
        raise CatalogueError(
            "kind",
            f"module '{name}' ends the program when it is imported (sys.exit({stop.code!r}))",
            'put what it does as a program under if __name__ == "__main__"',
        ) from None


def _load_own(top: str) -> None:
    """Load a top-level module from the user's folders, again if another file of that name was loaded before."""
    importlib.invalidate_caches()
    spec = _found_in(top, own_folders())
    if spec is None:
        raise ModuleNotFoundError(f"no module called '{top}'", name=top)
    place = _own_modules[top][0]
    if getattr(sys.modules.get(top), "__fdsim_place__", None) == place:
        return
    for loaded in [known for known in sys.modules if known.partition(".")[0] == top]:
        del sys.modules[loaded]
    module = module_from_spec(spec)
    module.__dict__["__fdsim_place__"] = place
    sys.modules[top] = module
    try:
        if spec.loader is not None:
            spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(top, None)
        raise


def _found_in(name: str, folders: Sequence[Path]) -> ModuleSpec | None:
    for folder in folders:
        spec = PathFinder.find_spec(name, [str(folder)])
        if spec is not None:
            _own_modules[name] = (spec.origin or f"{folder}/{name}", str(folder))
            return spec
    return None


class _Siblings:
    """Lets modules of the user's own, and nobody else, import what lies beside them."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if path is not None or not _own_modules:
            return None
        frame = sys._getframe(1)
        while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in (
            "importlib",
            "_frozen_importlib",
        ):
            frame = frame.f_back  # type: ignore[assignment]
        importer = frame.f_globals.get("__name__", "") if frame is not None else ""
        known = _own_modules.get(str(importer).partition(".")[0])
        return None if known is None else _found_in(name, [Path(known[1])])


# Last, so that whatever is installed comes first.
sys.meta_path.append(_Siblings)


def own_files() -> dict[str, str]:
    """Return the modules of the user's own that were loaded, each with its file."""
    return {name: place for name, (place, _) in _own_modules.items() if name in sys.modules}


def own_kinds(tables: Any) -> list[str]:
    """Return every `module:Class` that a scenario's plain tables name, in order, without importing any."""
    if isinstance(tables, list):
        return list(dict.fromkeys(kind for item in tables for kind in own_kinds(item)))
    if not isinstance(tables, dict):
        return []
    found = [v for k, v in tables.items() if k == "kind" and isinstance(v, str) and ":" in v]
    if tables.get("kind") == "module" and isinstance(tables.get("path"), str):
        found.append(tables["path"])
    return list(dict.fromkeys([*found, *(kind for item in tables.values() for kind in own_kinds(item))]))


def _load(path: str, family: str) -> type[Component]:
    module_name, _, class_name = path.partition(":")
    try:
        module = importlib.import_module(module_name) if path in _BUILT_IN else own_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise CatalogueError(
                family,
                f"no module called '{module_name}'",
                f"'{path}' is looked for beside the scenario, in the current folder and among installed packages",
            ) from None
        raise
    found = getattr(module, class_name, None)
    if found is None:
        names = [name for name in vars(module) if isinstance(getattr(module, name), type)]
        ours = module_name.partition(".")[0] in _own_modules
        raise CatalogueError(
            family,
            f"module '{module_name}' has no class '{class_name}'" + nearest(class_name, names),
            "" if ours else f"'{module_name}' is an installed package; a file of your own needs another name",
        )
    return found  # type: ignore[no-any-return]


@cache
def _unread(base: type[Component]) -> type[Component]:
    """Return a class that takes any fields: what stands for a class of the user's own that is not imported."""
    about = {
        "__doc__": "A kind of the user's own, shown as it is written and not imported.",
        "__module__": __name__,
        "model_config": ConfigDict(frozen=True, extra="allow", allow_inf_nan=False),
    }
    made = type(f"Unread{base.__name__}", (base,), about)
    made.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]  # it is shown, and never asked
    return made


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
    elif own_code_left():
        return _unread(base)
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
