"""Mutants of TOML files: their text, or the tables in it, changed at random from a seed."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator
from copy import deepcopy
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from fdsim.catalogue import MENU

#: What a key may be set to, whatever it was: every type of TOML, and the ends of what a number can be.
VALUES: tuple[Any, ...] = (
    *(-1, 0, 1, 2, 3, 7, 255, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)),
    *(-1.0, -0.0, 0.0, 1e-308, 1e-9, 0.3, 0.999999, 1.0, 1.5, 1e9, 1e308),
    *(float("inf"), float("-inf"), float("nan"), True, False),
    *("", "a", "0", "true", "auto", "nan", "\x00", "\x1b[31m", "../x", "/dev/null", "é" * 100, "x" * 5000),
    *(
        ".rel:X",
        "os:system",
        "no_such_module:X",
        "json:JSONDecoder",
        "=1+1",
        "²",
        "a.b",
        "a\nb",
        "\u202e",
        "\ud7ff",
    ),
    *([], [[]], [1], [0, 0], ["a"], [{}], [1, "a", True], [2**40, 2**40], [float("nan")], [[[[1]]]]),
    *(
        {},
        {"kind": "x"},
        {"kind": 1},
        {"kind": ""},
        {"a": {"b": {"c": 1}}},
        date(2026, 1, 1),
        datetime(1, 1, 1),
    ),
)
#: What text is spliced with.
TOKENS = (
    *(
        "=",
        "[",
        "]",
        "[[",
        "]]",
        "{",
        "}",
        '"',
        "'",
        "#",
        ",",
        ".",
        "\n",
        "\r",
        "\t",
        "\0",
        "\ufeff",
        '"""',
        "\\",
    ),
    *(
        "0x",
        "1e999",
        "-",
        "+",
        "_",
        "inf",
        "nan",
        "true",
        "1979-05-27",
        "9" * 25,
        "9" * 5000,
        "[" * 700,
        "a." * 700,
    ),
    *('extends = "quickstart.toml"\n', "[study]\n", "kind = ", 'name = "x"\n', "\x7f", "\ud7ff", "🦊"),
)


def text_mutant(text: str, rng: np.random.Generator) -> bytes:
    """Return a text with a few places changed; not always UTF-8 any more."""
    content = bytearray(text.encode())
    for _ in range(int(rng.geometric(0.7))):
        at = int(rng.integers(len(content) + 1))
        to = min(len(content), at + int(rng.integers(1, 30)))
        way = int(rng.integers(7))
        if way == 0:
            del content[at:to]
        elif way == 1 and content:
            content[min(at, len(content) - 1)] ^= 1 << int(rng.integers(8))
        elif way == 2:
            content[at:at] = _pick(TOKENS, rng).encode()
        elif way == 3:
            content[at:to] = _pick(TOKENS, rng).encode()
        elif way == 4:
            content[at:at] = content[at:to]
        else:
            content = bytearray(_lines_changed(bytes(content), rng, cut=way == 5))
    return bytes(content)


def _lines_changed(content: bytes, rng: np.random.Generator, *, cut: bool) -> bytes:
    lines = content.split(b"\n")
    one, other = (int(rng.integers(len(lines))) for _ in range(2))
    if cut:
        del lines[one]
    else:
        lines[one], lines[other] = lines[other], lines[one]
    return b"\n".join(lines)


def table_mutant(tables: dict[str, Any], others: list[Any], rng: np.random.Generator) -> bytes:
    """Return tables as TOML with a few values changed, removed, moved or added; `others` are values to borrow."""
    changed = tomllib.loads(tomli_w.dumps(tables))
    for _ in range(int(rng.geometric(0.7))):
        places = list(_places(changed))
        if not places:
            break
        holder, key = places[int(rng.integers(len(places)))]
        _WAYS[int(rng.integers(len(_WAYS)))](holder, key, others, rng)
    return tomli_w.dumps(changed).encode()


def json_mutant(facts: dict[str, Any], rng: np.random.Generator) -> bytes:
    """Return a JSON object with a few values changed, removed, moved or added."""
    changed = deepcopy(facts)
    for _ in range(int(rng.geometric(0.6))):
        holder, key = _pick(list(_places(changed)), rng)
        _WAYS[int(rng.integers(len(_WAYS)))](holder, key, [None, *leaves(facts)], rng)
    return json.dumps(changed, default=str).encode()


def leaves(tables: Any) -> list[Any]:
    """Return every value of some tables, however deep, tables and lists included."""
    return [holder[key] for holder, key in _places(tables)]


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    for key, value in list(node.items()) if isinstance(node, dict) else list(enumerate(node)):
        yield node, key
        if isinstance(value, dict | list):
            yield from _places(value)


def _pick(choices: Any, rng: np.random.Generator) -> Any:
    return choices[int(rng.integers(len(choices)))]


def _replace(holder: Any, key: Any, others: list[Any], rng: np.random.Generator) -> None:
    holder[key] = deepcopy(_pick(VALUES, rng))


def _borrow(holder: Any, key: Any, others: list[Any], rng: np.random.Generator) -> None:
    holder[key] = deepcopy(_pick(others, rng))


def _remove(holder: Any, key: Any, others: list[Any], rng: np.random.Generator) -> None:
    del holder[key]


def _scale(holder: Any, key: Any, others: list[Any], rng: np.random.Generator) -> None:
    value = holder[key]
    if isinstance(value, int) and not isinstance(value, bool):
        grown = value * int(_pick((-1, 10, 10**4, 10**6, 10**12), rng))
        holder[key] = max(-(2**63), min(2**63 - 1, grown))
    elif isinstance(value, float):
        holder[key] = value * float(_pick((-1, 1e-12, 1e-3, 1e3, 1e12, 1e300), rng))
    else:
        holder[key] = [value, deepcopy(value)]


def _rename(holder: Any, key: Any, others: list[Any], rng: np.random.Generator) -> None:
    if isinstance(holder, dict):
        holder[_pick((key + "x", key[:-1], key.upper(), "kind", "name", "extends", ""), rng)] = holder.pop(
            key
        )


def _other_kind(holder: Any, key: Any, others: list[Any], rng: np.random.Generator) -> None:
    kinds = [kind for family in MENU.values() for kind in family]
    if isinstance(holder, dict) and "kind" in holder:
        holder["kind"] = _pick(kinds, rng)
    elif isinstance(holder, dict):
        holder[key] = {"kind": _pick(kinds, rng)}


_WAYS: tuple[Callable[..., None], ...] = (
    _replace,
    _replace,
    _replace,
    _borrow,
    _remove,
    _scale,
    _rename,
    _other_kind,
)


def toml_files(folder: Path) -> list[Path]:
    """Return every TOML file of a folder, sorted."""
    return sorted(folder.rglob("*.toml"))
