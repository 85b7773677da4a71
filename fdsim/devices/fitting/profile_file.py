"""A fitted profile as a TOML file that a scenario can name: `profile = "my_phones.toml"`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any

_CHOSEN = "chosen by fdsim fleet fit, not from the log [E]"


def profile_text(profile: dict[str, Any], about: str, *, source: str, fitted: Collection[str]) -> str:
    """Return the text of a profile file; `source` is noted for the dotted keys that were fitted, and for no others."""
    fields = {key: value for key, value in profile.items() if key != "profile"}
    lines = [f"like = {json.dumps(profile['profile'])}", f"about = {json.dumps(about)}"]
    tables = {key: value for key, value in fields.items() if isinstance(value, dict)}
    lines += [f"{key} = {_value(value)}" for key, value in fields.items() if key not in tables]
    for key, table in tables.items():
        lines += ["", f"[{key}]", *(f"{name} = {_value(value)}" for name, value in table.items())]
    lines += ["", "[source]"]
    lines += [f"{_key(key)} = {_value(told)}" for key, told in _sources(fields, source, fitted)]
    return "\n".join(lines) + "\n"


def _sources(fields: dict[str, Any], source: str, fitted: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the source of each table, then of the keys in it that have another one."""
    for key, value in fields.items():
        if not isinstance(value, dict):
            yield key, source if key in fitted else _CHOSEN
            continue
        inner = [name for name in value if name != "kind"]
        chosen = [name for name in inner if f"{key}.{name}" not in fitted]
        if len(chosen) == len(inner):
            yield key, _CHOSEN
            continue
        yield key, source
        for name in chosen:
            yield f"{key}.{name}", _CHOSEN


def _key(key: str) -> str:
    return json.dumps(key) if "." in key else key


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_value(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(inner) for inner in value) + "]"
    return json.dumps(value, ensure_ascii=False)
