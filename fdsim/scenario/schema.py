"""The JSON Schema of scenario files, with the kinds of every family, for editors that complete and check TOML."""

from __future__ import annotations

from typing import Any

from fdsim.catalogue import MENU, find
from fdsim.scenario import Scenario


def scenario_schema() -> dict[str, Any]:
    """Return the schema of a whole scenario file."""
    schema = Scenario.model_json_schema()
    definitions = schema.setdefault("$defs", {})
    for family in MENU:
        definitions[f"family_{family}"] = _family(family, definitions)
    schema["properties"]["extends"] = {
        "type": "string",
        "description": "another scenario file this one builds on",
    }
    # A file that extends another may leave anything out; the reader checks the joined whole.
    schema.pop("required", None)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_with_references(schema)}


def _family(family: str, definitions: dict[str, Any]) -> dict[str, Any]:
    kinds: list[dict[str, Any]] = []
    for kind in MENU[family]:
        table = find(family, kind).model_json_schema()
        definitions.update(table.pop("$defs", {}))
        table.setdefault("properties", {})["kind"] = {"const": kind}
        table["required"] = sorted({*table.get("required", []), "kind"})
        kinds.append(table)
    own = {
        "type": "object",
        "title": f"a {family} of your own",
        "properties": {"kind": {"type": "string", "pattern": r"^[\w.]+:\w+$"}},
        "required": ["kind"],
    }
    # A fleet group or an extending file may override single keys without naming the kind again.
    part = {"type": "object", "title": f"part of a {family}", "not": {"required": ["kind"]}}
    return {"anyOf": [*kinds, {"enum": sorted(MENU[family])}, own, part]}


def _with_references(node: Any) -> Any:
    if isinstance(node, dict):
        if "x-fdsim-family" in node:
            rest = {key: value for key, value in node.items() if key not in ("x-fdsim-family", "default")}
            return {**rest, "$ref": f"#/$defs/family_{node['x-fdsim-family']}"}
        return {key: _with_references(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_with_references(item) for item in node]
    return node
