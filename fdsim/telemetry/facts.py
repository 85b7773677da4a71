"""What is known of a run before it starts, and whether a run on disk is that run."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, TypedDict

from fdsim.errors import RunFolderError
from fdsim.telemetry.manifest import Manifest
from fdsim.telemetry.settings import Telemetry


class RunFacts(TypedDict):
    """What is known of a run before it starts."""

    scenario_toml: str
    scenario_hash: str
    seed: int
    name: str
    strategies: list[str]
    rounds: int


def settings_in(scenario_toml: str) -> Telemetry:
    """Return the [telemetry] table of a scenario."""
    return Telemetry.model_validate(tomllib.loads(scenario_toml).get("telemetry", {}))


def refuse_change(path: Path, manifest: Manifest, facts: RunFacts) -> None:
    """Raise an error that names the keys which differ when the run on disk is of another scenario."""
    if manifest["scenario_hash"] == facts["scenario_hash"]:
        return
    try:
        old = flat(tomllib.loads((path / "scenario.toml").read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise RunFolderError(str(path / "scenario.toml"), f"the file is damaged ({error})") from None
    new = flat(tomllib.loads(facts["scenario_toml"]))
    changed = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
    what = ", ".join(f"{key} ({_shown(old, key)} → {_shown(new, key)})" for key in changed[:8])
    if len(changed) > 8:
        what += f" and {len(changed) - 8} more"
    raise RunFolderError(
        str(path),
        f"the scenario has changed since the run began: {what or 'a file or class it names'}",
        "undo the change to resume, choose another --out, or start anew with --force",
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
