"""Components: frozen pydantic records whose fields are their TOML keys and whose methods are their behaviour.

Every exchangeable part of fdsim is a component of some *family*; nothing else in the code base looks kinds up.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
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

from fdsim.catalogue.menu import BASES, MENU, nearest
from fdsim.catalogue.own_code import file_of, own_class, own_code_left
from fdsim.errors import CatalogueError

_BUILT_IN = frozenset([*BASES.values(), *(path for kinds in MENU.values() for path in kinds.values())])


class Table(BaseModel):
    """A frozen record that refuses unknown keys."""

    # The validator of a class is built when it is first asked: a scenario names few of the kinds that are imported.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    @classmethod
    def __pydantic_init_subclass__(cls, **about: Any) -> None:
        # What is wrong with a field of a user's own class is told at the line of the class, not at its first use.
        if not cls.__module__.startswith("fdsim."):
            cls.model_rebuild(raise_errors=False)

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


def is_own(component: Component) -> bool:
    """Whether a component is of a class of the user's own that is imported."""
    return not type(component).__module__.startswith("fdsim.")


def named(component: Component) -> str:
    """Return a component's kind and the file that defines its class, for errors."""
    module = type(component).__module__
    return f"'{component.kind}' ({getattr(sys.modules.get(module), '__file__', None) or module})"


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
    if ":" in kind:
        return _own_kind(family, kind)
    if kind not in MENU[family]:
        article = "an" if family[0] in "aeiou" else "a"
        raise CatalogueError(
            family,
            f"no {family} called '{kind}'" + nearest(kind, list(MENU[family])),
            f"{article} {family} of your own is named 'module:Class'",
        )
    return _class_at(MENU[family][kind])


def _own_kind(family: str, kind: str) -> type[Component]:
    """Return the class that a `module:Class` names, or what stands for it where nothing of the user's is imported."""
    base = _class_at(BASES[family])
    if own_code_left():
        return _unread(base)
    found = _class_at(kind) if kind in _BUILT_IN else own_class(kind, family)
    if not (isinstance(found, type) and issubclass(found, base)):
        remedy = f"derive the class from {BASES[family].replace(':', '.')}"
        if family == "net":
            remedy = f'an nn.Module is named {{ kind = "module", path = "{kind}" }}; else {remedy}'
        raise CatalogueError(family, f"'{kind}' is not a {family}", remedy)
    missing = sorted(getattr(found, "__abstractmethods__", ()))
    if missing:
        raise CatalogueError(
            family,
            f"'{kind}' ({file_of(found)}) lacks {', '.join(missing)}",
            f"write {'it' if len(missing) == 1 else 'them'} as {BASES[family].replace(':', '.')} describes",
        )
    return found


def _class_at(path: str) -> type[Component]:
    module, _, name = path.partition(":")
    found: type[Component] = getattr(importlib.import_module(module), name)
    return found


def build(family: str, table: Any) -> Component:
    """Make a component from a TOML table or a bare kind; return a component as it is.

    All that it raises about the table is a ValueError, which pydantic gives the place of the key.
    """
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
    component = find(family, table["kind"])
    try:
        return component.model_validate(table)
    except ValidationError as error:
        raise NestedError(error, component) from None


@dataclass(frozen=True)
class Chosen:
    """Marks a field as one component of a family: `battery: Annotated[Battery, Chosen("battery")]`."""

    family: str
    optional: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def dump(value: Component) -> dict[str, Any]:
            # The value's own class decides what is dumped, not the family's base class.
            return value.model_dump(mode="json", exclude_none=True)

        chosen = core_schema.no_info_plain_validator_function(
            partial(build, self.family),
            serialization=core_schema.plain_serializer_function_ser_schema(dump),
        )
        return core_schema.nullable_schema(chosen) if self.optional else chosen

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
