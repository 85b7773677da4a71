"""A scenario as dotted keys, and which of them changed since a run began."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fdsim.errors import RunFolderError
from fdsim.files import hash_of
from fdsim.telemetry.manifest import checksum_of

if TYPE_CHECKING:
    from fdsim.scenario import Scenario

#: Changed keys that a message names.
_MOST_SHOWN = 8


def read_tables(folder: Path) -> dict[str, Any]:
    """Return the scenario of a run as plain tables, without importing anything it names."""
    path = folder / "scenario.toml"
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        hash_of(tables)  # dates, say, which no scenario has, have none
        return tables
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise RunFolderError(str(path), f"the file is damaged ({error})", "restore it from a copy") from None


def as_target(value: Any) -> float | None:
    """Return a scenario's target accuracy, or None where it has none: an edited scenario.toml may say anything."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and 0 < value <= 1 else None


def refuse_change(folder: Path, recorded_hash: str, scenario: Scenario) -> None:
    """Raise an error that names the changed keys when the run in `folder` is of another scenario."""
    if recorded_hash == scenario.content_hash:
        return
    old, new = flat(read_tables(folder)), flat(scenario.as_tables())
    changed = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
    what = ", ".join(f"{key} ({_shown(old, key)} → {_shown(new, key)})" for key in changed[:_MOST_SHOWN])
    if len(changed) > _MOST_SHOWN:
        what += f" and {len(changed) - _MOST_SHOWN} more"
    raise RunFolderError(
        str(folder),
        f"the scenario has changed since the run began: {what or 'a file or class it names'}",
        "undo the change to resume, choose another --out, or start over with --force",
    )


def refuse_edits(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Raise an error when a run's scenario.toml or run.json was edited since it was written."""
    tables = read_tables(folder)
    if hash_of(tables) != manifest["scenario_hash"]:
        raise RunFolderError(
            str(folder / "scenario.toml"),
            "the file was edited: it is not the scenario that the run used",
            "restore it from a copy, or start over with --force",
        )
    for key in ("seed", "rounds"):
        if tables.get(key) != manifest[key]:
            raise RunFolderError(
                str(folder / "run.json"),
                f"the file was edited: {key} is {manifest[key]!r}, and {tables.get(key)!r} in scenario.toml",
                "restore it from a copy, or start over with --force",
            )
    if manifest.get("checksum") not in (None, checksum_of(manifest)):
        raise RunFolderError(
            str(folder / "run.json"),
            "the file was edited: it is not as the run left it",
            "restore it from a copy, or start over with --force",
        )


def _shown(table: dict[str, Any], key: str) -> str:
    return repr(table[key]) if key in table else "absent"


def flat(table: Any, prefix: str = "") -> dict[str, Any]:
    """Return a nested table as dotted keys: {"net.kind": "mlp", "strategies[0].kind": "fdms", …}."""
    if isinstance(table, dict) and table:
        return {
            k: v
            for key, item in table.items()
            for k, v in flat(item, f"{prefix}.{key}" if prefix else key).items()
        }
    if isinstance(table, list) and any(isinstance(item, dict) for item in table):
        return {k: v for i, item in enumerate(table) for k, v in flat(item, f"{prefix}[{i}]").items()}
    return {prefix: table}
