"""A fitted profile as a TOML file that a scenario can name: `profile = "my_phones.toml"`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

_CHOSEN = "chosen by fdsim fleet fit, not from the log [E]"


def profile_text(profile: dict[str, Any], about: str, *, source: str, chosen: Sequence[str] = ()) -> str:
    """Return the text of a profile file; `source` is noted for all that was fitted, which `chosen` keys were not."""
    fields = {key: value for key, value in profile.items() if key != "profile"}
    lines = [f"like = {json.dumps(profile['profile'])}", f"about = {json.dumps(about)}"]
    tables = {key: value for key, value in fields.items() if isinstance(value, dict)}
    lines += [f"{key} = {_value(value)}" for key, value in fields.items() if key not in tables]
    for key, table in tables.items():
        lines += ["", f"[{key}]", *(f"{name} = {_value(value)}" for name, value in table.items())]
    lines += ["", "[source]"]
    lines += [f"{key} = {_value(_CHOSEN if key in chosen else source)}" for key in fields]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_value(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(inner) for inner in value) + "]"
    return json.dumps(value, ensure_ascii=False)
