"""Scenario files as text: TOML layers joined by `extends`, overrides from the command line, and the line of a key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fdsim.catalogue import merge
from fdsim.errors import ScenarioError


@dataclass(frozen=True)
class Layers:
    """A scenario's tables after `extends`, and the files they came from, the named one first."""

    tables: dict[str, Any]
    texts: tuple[tuple[Path, str], ...]

    def locate(self, loc: Sequence[str | int]) -> str:
        """Return the file and line of a key, or of the nearest table around it that has a line."""
        for depth in range(len(loc), 0, -1):
            for path, text in self.texts:
                line = line_of(text, loc[:depth])
                if line is not None:
                    return f"{path}, line {line}"
        return str(self.texts[0][0])


#: What stands for the file's name in messages about a text that is in no file.
TEXT = Path("scenario text")


def read_layers(path: Path, text: str | None = None) -> Layers:
    """Read a file and everything it extends; the nearer layer wins, tables merge, lists are replaced.

    With `text`, that is read in place of the file; what it extends is looked for in the current folder.
    """
    tables: dict[str, Any] = {}
    texts: list[tuple[Path, str]] = []
    seen: list[Path] = []
    current: Path | None = path
    given = text
    while current is not None:
        place = f"{texts[-1][0]}: extends" if texts else str(current)
        try:
            resolved = current.resolve()
        except (OSError, ValueError, RuntimeError) as error:
            raise ScenarioError(
                place, f"{str(current)[:200]!r} cannot be the name of a file ({error})"
            ) from None
        if resolved in seen:
            raise ScenarioError(
                str(current), "extends itself, directly or through others", "break the circle of extends"
            )
        seen.append(resolved)
        text = _read(current, texts[-1][0] if texts else None) if given is None else given
        given = None
        layer = _parse(current, text, quoted=not texts)
        texts.append((current, text))
        base = layer.pop("extends", None)
        if base is not None and not isinstance(base, str):
            raise ScenarioError(f"{current}: extends", f"{base!r} is not a file name")
        tables = merge(layer, tables)
        current = current.parent / base if base is not None else None
    return Layers(tables, tuple(texts))


def _read(path: Path, asked_by: Path | None) -> str:
    place = f"{asked_by}: extends" if asked_by else str(path)
    try:
        if path.is_dir():
            raise ScenarioError(place, f"'{path}' is a folder", "name the .toml file in it")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        near = sorted(p.name for p in path.parent.glob("*.toml")) if path.parent.is_dir() else []
        remedy = (
            f"in {path.parent} there is: {', '.join(near)}"
            if near
            else "`fdsim new DIR` makes one to start from"
        )
        raise ScenarioError(place, f"there is no file '{path}'", remedy) from None
    except UnicodeDecodeError:
        raise ScenarioError(place, f"'{path}' is not UTF-8 text") from None
    except OSError as error:
        raise ScenarioError(place, f"cannot read '{path}' ({error.strerror})") from None


def _parse(path: Path, text: str, *, quoted: bool) -> dict[str, Any]:
    """Parse a file; the line with a mistake is `quoted` only where the user named the file, not where another file did."""
    try:
        tables = tomllib.loads(text)
        _refuse_huge(tables, str(path))
        return tables
    except RecursionError:
        raise ScenarioError(str(path), "its tables are nested too deeply") from None
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"line (\d+)", str(error))
        shown = (
            text.splitlines()[int(line[1]) - 1].strip()
            if line and int(line[1]) <= len(text.splitlines())
            else ""
        )
        remedy = f"the line reads: {shown}" if shown and quoted else ""
        raise ScenarioError(str(path), f"not valid TOML: {error}", remedy) from None
    except ValueError as error:  # a number of thousands of digits
        raise ScenarioError(str(path), f"not valid TOML: {error}") from None


def _refuse_huge(value: Any, place: str) -> None:
    """Refuse whole numbers that TOML does not have: they would overflow somewhere inside a run."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            _refuse_huge(item, place)
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ScenarioError(place, f"{str(value)[:30]}… is beyond 64 bits", "give a smaller whole number")


def override(tables: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Apply `a.b=value` settings; values are TOML, a bare word is a string, lists are indexed by number."""
    for setting in overrides:
        key, equals, text = setting.partition("=")
        if not equals or not key.strip():
            raise ScenarioError(
                f"--set {setting}", "is not of the form key=value", "as in --set training.batch_size=20"
            )
        try:
            value = toml_value(text)
            _refuse_huge(value, f"--set {setting[:80]}")
        except (RecursionError, ValueError) as error:
            raise ScenarioError(f"--set {setting[:80]}", f"the value cannot be read ({error})") from None
        tables = with_value(tables, key.strip(), value, f"--set {setting}")
    return tables


def with_value(tables: dict[str, Any], key: str, value: Any, place: str) -> dict[str, Any]:
    """Set one dotted key; `place` is named when the key leads nowhere."""
    changed: dict[str, Any] = _with_value(tables, key.split("."), value, place)
    return changed


def toml_value(text: str) -> Any:
    """Return one TOML value; text that is not TOML is taken as a plain string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _with_value(node: Any, keys: list[str], value: Any, place: str) -> Any:
    if not keys:
        return value
    key, rest = keys[0], keys[1:]
    if isinstance(node, list):
        if not key.isdecimal() or len(key) > 9 or int(key) >= len(node):
            raise ScenarioError(
                place, f"'{key}' is not one of the {len(node)} entries", "entries are numbered from 0"
            )
        changed = list(node)
        changed[int(key)] = _with_value(node[int(key)], rest, value, place)
        return changed
    if not isinstance(node, dict):
        raise ScenarioError(place, f"there is nothing called '{key}' inside {node!r}")
    return {**node, key: _with_value(node.get(key, {}), rest, value, place)}


_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(#.*)?$")


def line_of(text: str, loc: Sequence[str | int]) -> int | None:
    """Return the line on which a key like ("fleet", 0, "count") is written, inline tables included."""
    table: list[str | int] = []
    counts: dict[str, int] = {}
    wanted = list(loc)
    for number, line in enumerate(text.splitlines(), start=1):
        header = _HEADER.match(line)
        if header:
            table = list(header[2].split("."))
            if header[1] == "[[":
                counts[header[2]] = counts.get(header[2], -1) + 1
                table.append(counts[header[2]])
            if table == wanted:
                return number
            continue
        if wanted[: len(table)] != table:
            continue
        key, *inner = [str(part) for part in wanted[len(table) :]] or [""]
        here = key and re.match(rf"^\s*\"?{re.escape(key)}\"?\s*(\.|=)", line)
        if here and all(re.search(rf"\b{re.escape(part)}\b", line) for part in inner):
            return number
    return None
