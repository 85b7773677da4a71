"""Every key of a scenario by table: type, default, unit and meaning, read off the models that check them.

for table in key_tables(): print(table.name, [key.name for key in table.keys])
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

from pydantic import BaseModel

from fdsim.catalogue import MENU, find, first_line
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
        # Worked out for those that are shown: the schemas of all tables take a while.
        return tuple(key for key in _keys(self.model.model_json_schema()) if key.name != named)


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


def _keys(schema: Mapping[str, Any]) -> Iterator[Key]:
    required = schema.get("required", [])
    for name, about in schema.get("properties", {}).items():
        default = about.get("default")
        plain = default is not None and not isinstance(default, dict) and default not in ([], "")
        yield Key(
            name=name,
            type=_type(about, schema.get("$defs", {})),
            default=_toml(default) if plain else "",
            required=name in required,
            unit=next((unit for end, unit in _UNITS.items() if name.endswith(end)), ""),
            meaning=str(about.get("description", "")),
        )


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list):
        return f"[{', '.join(_toml(item) for item in value)}]"
    return str(value)


_WORDS = {
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "boolean": "true or false",
    "object": "table",
}
_BOUNDS = {"exclusiveMinimum": "> {}", "minimum": "≥ {}", "exclusiveMaximum": "< {}", "maximum": "≤ {}"}


def _type(about: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """Say in words what a key takes."""
    if "x-fdsim-family" in about:
        family = about["x-fdsim-family"]
        return f"table with a kind, see `fdsim list keys {family}`"
    if "$ref" in about:
        return _type(definitions.get(about["$ref"].rsplit("/", 1)[-1], {}), definitions)
    if "const" in about:
        return _toml(about["const"])
    if "enum" in about:
        return " or ".join(_toml(value) for value in about["enum"])
    choices: Sequence[Mapping[str, Any]] = about.get("anyOf") or about.get("oneOf") or ()
    if choices:
        told = [_type(choice, definitions) for choice in choices if choice.get("type") != "null"]
        return " or ".join(dict.fromkeys(told))
    if about.get("type") == "array":
        items = about.get("items") or (about.get("prefixItems") or [{}])[0]
        return f"list of {_type(items, definitions)}"
    word = _WORDS.get(str(about.get("type")), "any value")
    bounds = [text.format(f"{about[key]:g}") for key, text in _BOUNDS.items() if key in about]
    return " ".join([word, *([", ".join(bounds)] if bounds else [])])
