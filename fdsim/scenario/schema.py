"""The JSON Schema of scenario files, with the kinds of every family, for editors that complete and check TOML.

An editor sees one file, and the reader the joined whole: a group of devices overrides parts of its profile, a file
those of the one it extends. So the schema asks only for what no other layer can give; `fdsim validate` checks the rest.
"""

from __future__ import annotations

from typing import Any

from fdsim.catalogue import MENU, find, first_line
from fdsim.scenario import Scenario

#: Tables that stand in lists, which replace one another as a whole: what they require must be in the file.
_WHOLE = {"Cell": None, "Outage": None, "Absence": None, "DeviceGroup": ["count"]}


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
    for name, table in definitions.items():
        if name not in _WHOLE:
            table.pop("required", None)
        elif _WHOLE[name] is not None:
            table["required"] = _WHOLE[name]
    _allow_bare_kind(definitions["Training"]["properties"]["schedule"])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_with_references(schema)}


def _allow_bare_kind(chosen: dict[str, Any]) -> None:
    """Accept `schedule = "constant"` beside `schedule = { kind = "constant" }`."""
    kinds = sorted(chosen.pop("discriminator")["mapping"])
    chosen["anyOf"] = [*chosen.pop("oneOf"), {"enum": kinds}]


def _family(family: str, definitions: dict[str, Any]) -> dict[str, Any]:
    kinds: list[dict[str, Any]] = []
    for kind in MENU[family]:
        component = find(family, kind)
        table = component.model_json_schema()
        definitions.update(table.pop("$defs", {}))
        table.setdefault("properties", {})["kind"] = {"const": kind, "description": first_line(component)}
        table["required"] = ["kind"]
        kinds.append(table)
    article = "an" if family[0] in "aeiou" else "a"
    own = {
        "type": "object",
        "title": f"{article} {family} of your own",
        "properties": {
            "kind": {
                "type": "string",
                "pattern": r"^[\w.]+:\w+$",
                "description": "module:Class; looked for beside the scenario, then in the current folder; "
                "an installed package of that name comes first",
            }
        },
        "required": ["kind"],
    }
    # A fleet group or an extending file may override single keys without naming the kind again.
    part = {"type": "object", "title": f"part of {article} {family}", "not": {"required": ["kind"]}}
    words = {"enum": sorted(MENU[family]), "description": "a kind with its defaults"}
    return {"anyOf": [*kinds, words, own, part]}


def _with_references(node: Any) -> Any:
    if isinstance(node, dict):
        if "x-fdsim-family" in node:
            rest = {key: value for key, value in node.items() if key not in ("x-fdsim-family", "default")}
            return {**rest, "$ref": f"#/$defs/family_{node['x-fdsim-family']}"}
        return {key: _with_references(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_with_references(item) for item in node]
    return node
