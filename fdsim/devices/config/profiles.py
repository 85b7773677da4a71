"""The device profiles of profiles.toml: tables that a fleet group starts from and overrides."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from fdsim.catalogue import merge, nearest
from fdsim.errors import ScenarioError

#: What the marks behind a value's source mean.
MARKS = {
    "[D]": "computed from trace or benchmark files",
    "[T]": "from a paper or vendor page",
    "[M]": "from memory, unverified",
    "[E]": "an engineering choice",
}
#: Keys of a profile that are not fields of a device group.
_ABOUT = ("about", "like", "source")


@cache
def _library() -> dict[str, dict[str, Any]]:
    return tomllib.loads(
        resources.files("fdsim.devices.config").joinpath("profiles.toml").read_text(encoding="utf-8")
    )


def names() -> list[str]:
    """Return the names of all profiles."""
    return list(_library())


def about() -> Iterator[tuple[str, str]]:
    """Yield (name, one-line description) of every profile."""
    for name, table in _library().items():
        yield name, str(table["about"])


def _read(path: Path) -> dict[str, Any]:
    """Read a profile of the user's own, as `fdsim fleet fit` writes them."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ScenarioError("fleet.profile", f"there is no file '{path}'") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ScenarioError("fleet.profile", f"'{path}' is not readable as TOML ({error})") from None
    if not isinstance(table.get("like"), str) or table["like"].endswith(".toml"):
        raise ScenarioError(
            "fleet.profile", f"'{path}' does not say which profile it is like", 'add like = "midrange_phone"'
        )
    return table


def _raw(name: str) -> dict[str, Any]:
    if name.endswith(".toml"):
        return _read(Path(name))
    library = _library()
    if name not in library:
        raise ScenarioError("fleet.profile", f"no profile called '{name}'" + nearest(name, list(library)))
    return library[name]


def profile(name: str) -> dict[str, Any]:
    """Return the fields of a device group that a profile sets, as plain tables."""
    table = _raw(name)
    own = {key: value for key, value in table.items() if key not in _ABOUT}
    return merge(profile(table["like"]), own) if "like" in table else own


def sources(name: str) -> dict[str, str]:
    """Return where a profile's numbers come from: dotted key (or the start of one) → source."""
    table = _raw(name)
    own: dict[str, str] = table.get("source", {})
    if "like" not in table:
        return dict(own)
    before, now = profile(table["like"]), profile(name)
    # A value that the profile changes has the source that the profile gives for its table.
    inherited = {
        key: text
        for key, text in sources(table["like"]).items()
        if key.split(".")[0] not in own or _at(before, key) == _at(now, key)
    }
    return {**inherited, **own}


def _at(fields: dict[str, Any], dotted: str) -> Any:
    found: Any = fields
    for word in dotted.split("."):
        found = found.get(word) if isinstance(found, dict) else None
    return found
