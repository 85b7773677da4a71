"""What is wrong with a scenario: place, problem and remedy of each error, one a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from fdsim.catalogue import NestedError, nearest
from fdsim.errors import CatalogueError, ScenarioError
from fdsim.scenario.file import Layers

_COMPARED = {
    "greater_than": ("gt", "must be greater than"),
    "greater_than_equal": ("ge", "must be at least"),
    "less_than": ("lt", "must be less than"),
    "less_than_equal": ("le", "must be at most"),
}
_WANTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "string_type": "a text in quotes",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "tuple_type": "a list of tables, each under [[…]]",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "finite_number": "a finite number",
}

Location = tuple[str | int, ...]


def scenario_error(
    error: ValidationError, model: type[BaseModel], source: Layers | str, overrides: Sequence[str]
) -> ScenarioError:
    """Return a pydantic error as one readable line, or as one line for each of several problems."""
    found: dict[str, str] = {}
    flat = list(_flat(error, model, ()))
    for loc, detail, owner in flat:
        # A list whose only entry is wrong is not too short besides.
        if detail["type"] == "too_short" and any(other[: len(loc)] == loc != other for other, _, _ in flat):
            continue
        text = f"{_key(loc)}: {_problem(detail, owner)}" if loc else _problem(detail, owner)
        found.setdefault(text, _place(loc, source, overrides))
    if len(found) == 1:
        text, place = next(iter(found.items()))
        return ScenarioError(place, text)
    whole = source if isinstance(source, str) else str(source.texts[0][0])
    lines = "".join(f"\n  {place}: {text}" for text, place in found.items())
    return ScenarioError(whole, f"{len(found)} problems:{lines}")


def _place(loc: Location, source: Layers | str, overrides: Sequence[str]) -> str:
    dotted = ".".join(map(str, loc))
    for setting in reversed(overrides):
        key = setting.partition("=")[0].strip()
        if dotted == key or dotted.startswith(key + ".") or key.startswith(dotted + "."):
            return f"--set {setting}"
    return source if isinstance(source, str) else source.locate(loc)


def _flat(
    error: ValidationError, model: type[BaseModel], base: Location
) -> Iterator[tuple[Location, Any, Any]]:
    """Yield (place, pydantic detail, owning class) of every error, those of chosen components included."""
    for detail in error.errors():
        loc = base + tuple(part for part in detail["loc"] if not _is_machinery(part))
        nested = detail.get("ctx", {}).get("error")
        if isinstance(nested, NestedError):
            yield from _flat(nested.error, nested.component, loc)
        else:
            yield loc, detail, _owner(model, loc[len(base) :])


def _is_machinery(part: str | int) -> bool:
    # pydantic names union branches and validators in its locations; whoever wrote the TOML never wrote those.
    return isinstance(part, str) and ("[" in part or part in {"float", "int", "str", "bool", "list"})


def _owner(model: type[BaseModel], loc: Location) -> type[BaseModel]:
    """Follow a location down to the table that holds its last key."""
    owner = model
    for part in loc[:-1]:
        if isinstance(part, int):
            continue
        field = owner.model_fields.get(part)
        if field is None:
            break
        for candidate in (field.annotation, *get_args(field.annotation)):
            if isinstance(candidate, type) and issubclass(candidate, BaseModel):
                owner = candidate
                break
    return owner


def _key(loc: Location) -> str:
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _problem(detail: Any, owner: type[BaseModel]) -> str:
    kind, given, context = detail["type"], detail.get("input"), detail.get("ctx", {})
    if kind == "extra_forbidden":
        return f"there is no such key{nearest(str(detail['loc'][-1]), list(owner.model_fields))}"
    if kind == "missing":
        return "this key is missing"
    if kind in _COMPARED:
        limit, words = _COMPARED[kind]
        return f"{given!r} {words} {context[limit]}"
    if kind in _WANTED:
        return f"{given!r} is not {_WANTED[kind]}"
    if kind == "literal_error" or kind == "enum":
        return f"{given!r} is not one of {context.get('expected', '')}"
    if kind == "too_short":
        return f"at least {context.get('min_length', 1)} is needed, {context.get('actual_length', 0)} given"
    if kind == "value_error":
        error = context.get("error", detail["msg"])
        if isinstance(error, CatalogueError):  # the place is known better here
            return error.problem + (f". {error.remedy}" if error.remedy else "")
        return str(error)
    return f"{given!r}: {detail['msg'][0].lower()}{detail['msg'][1:]}"
