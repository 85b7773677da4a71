"""Every key of a scenario by table: type, default, unit and meaning, read off the models that check them.

for table in key_tables(): print(table.name, [key.name for key in table.keys])
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fdsim.catalogue import MENU, Chosen, find, first_line
from fdsim.scenario import Scenario

#: The end of a key's name → its unit.
_UNITS = {
    "_bps": "bit/s",
    "_wh": "Wh",
    "_w": "W",
    "_j": "J",
    "_frac": "0 to 1",
    "_prob": "0 to 1",
    "soc": "0 to 1",
    "_hour": "hour of the day",
    "_h": "h",
    "_s": "s",
    "_per_sample": "ms",
    "gflops": "GFLOP/s",
}


@dataclass(frozen=True)
class Key:
    """One key of a table."""

    name: str
    type: str
    default: str
    """As it would be written in TOML; empty when the key must be given or has no default of its own."""
    required: bool
    unit: str
    meaning: str


@dataclass(frozen=True)
class KeyTable:
    """A table, or a kind of a family, with its keys. `name` is as in TOML: server.eligibility, battery tapered."""

    name: str
    model: type[BaseModel]

    @property
    def about(self) -> str:
        """What the table is, in a line."""
        return first_line(self.model)

    @cached_property
    def keys(self) -> tuple[Key, ...]:
        """The keys; a kind's own, without the one that names it."""
        named = "kind" if hasattr(self.model, "family") else None
        return tuple(_key(name, field) for name, field in self.model.model_fields.items() if name != named)


def key_tables() -> list[KeyTable]:
    """Return all tables of a scenario file, then the kinds of every family."""
    found = list(tables_of(Scenario, ""))
    for family in MENU:
        for kind in MENU[family]:
            component = find(family, kind)
            found.append(KeyTable(f"{family} {kind}", component))
            found += _inner(component, f"{family} {kind}", skip={table.about for table in found})
    return found


def tables_of(model: type[BaseModel], name: str) -> Iterator[KeyTable]:
    """Yield a table and those inside it; one of several to choose from has its kind in its name."""
    kind = model.model_fields.get("kind")
    name = f"{name} {kind.default}" if kind is not None else name
    yield KeyTable(name, model)
    yield from _inner(model, name)


def _inner(model: type[BaseModel], name: str, skip: set[str] | None = None) -> Iterator[KeyTable]:
    """Yield the tables inside a table; families are told apart by kind, not here."""
    for key, field in model.model_fields.items():
        for part in _models_in(field.annotation):
            if hasattr(part, "family") or first_line(part) in (skip or ()):
                continue
            yield from tables_of(part, f"{name}.{key}" if name else key)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


def _key(name: str, field: FieldInfo) -> Key:
    # Off the field and not its JSON schema: the schemas of all tables take longer than all else that lists them.
    return Key(
        name=name,
        type=_type(field.annotation, field.metadata),
        default=_toml(field.default),
        required=field.is_required(),
        unit=next((unit for end, unit in _UNITS.items() if name.endswith(end)), ""),
        meaning=field.description or "",
    )


def _toml(value: Any) -> str:
    """Return a default as TOML writes it; "" for nothing, for what is empty and for tables, which have a place of their own."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | Path):
        return f'"{value}"' if str(value) else ""
    if isinstance(value, tuple):
        items = [_toml(item) for item in value]
        return f"[{', '.join(items)}]" if all(items) and items else ""
    return str(value) if isinstance(value, int | float) else ""


_WORDS = {
    int: "whole number",
    float: "number",
    str: "text",
    Path: "text",
    bool: "true or false",
    dict: "table",
}
_BOUNDS = {"gt": "> {:g}", "ge": "≥ {:g}", "lt": "< {:g}", "le": "≤ {:g}"}


def _type(annotation: Any, beside: Sequence[Any] = ()) -> str:
    """Say in words what a key takes: by its annotation, and by the bounds or the family that stand beside it."""
    chosen = next((mark.family for mark in beside if isinstance(mark, Chosen)), None)
    if chosen is not None:
        return f"table with a kind, see `fdsim list keys {chosen}`"
    origin, inner = get_origin(annotation) or annotation, get_args(annotation)
    if origin is Annotated:
        within = [mark.metadata if isinstance(mark, FieldInfo) else [mark] for mark in inner[1:]]
        return _type(inner[0], [*(mark for marks in within for mark in marks), *beside])
    if origin is Literal:
        return " or ".join(_toml(value) for value in inner)
    if origin in (Union, UnionType):
        told = [_type(choice, beside) for choice in inner if choice is not type(None)]
        return " or ".join(dict.fromkeys(told))
    if origin in (list, tuple):
        return f"list of {_type(inner[0])}"
    if isinstance(origin, type) and issubclass(origin, BaseModel):
        return "table"
    word = _WORDS.get(origin, "any value")
    given = {name: getattr(mark, name) for mark in beside for name in _BOUNDS if hasattr(mark, name)}
    bounds = [text.format(given[name]) for name, text in _BOUNDS.items() if name in given]
    return " ".join([word, *([", ".join(bounds)] if bounds and origin in (int, float) else [])])
