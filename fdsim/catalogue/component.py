"""Components: frozen pydantic records whose fields are their TOML keys and whose methods are their behaviour.

Every exchangeable part of fdsim is a component of some *family*; nothing else in the code base looks kinds up.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar
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
from pydantic_core import CoreSchema, core_schema

from fdsim.catalogue.menu import BASES, MENU, nearest
from fdsim.catalogue.own_code import own_code_left, own_module, own_modules
from fdsim.errors import CatalogueError

_BUILT_IN = frozenset([*BASES.values(), *(path for kinds in MENU.values() for path in kinds.values())])


class Table(BaseModel):
    """A frozen record that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


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
    """Carries a chosen component's own validation errors up to the table that chose it."""

    def __init__(self, error: ValidationError, component: type[Component]) -> None:
        super().__init__(str(error))
        self.error, self.component = error, component


def kind_of(component: type[Component]) -> str:
    """Return the short name of a built-in class, or module:Class for anyone else's."""
    path = f"{component.__module__}:{component.__qualname__}"
    names = MENU.get(getattr(component, "family", ""), {})
    return next((name for name, target in names.items() if target == path), path)


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
        ours = module_name.partition(".")[0] in own_modules
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
