"""The schema takes what the reader takes: every shipped file passes, mistakes do not, and every key is explained."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fdsim.scenario import load_scenario
from fdsim.scenario.reference import key_tables, tables_of
from fdsim.scenario.schema import scenario_schema
from fdsim.studies.study_file import StudyTable
from fdsim.studies.study_schema import study_schema

jsonschema = pytest.importorskip("jsonschema")

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "scenarios").rglob("*.toml"))
STUDIES = [path for path in FILES if "[study]" in path.read_text()]
SCENARIOS = [path for path in FILES if path not in STUDIES]


@pytest.fixture(scope="module")
def of_scenario() -> Any:
    jsonschema.Draft202012Validator.check_schema(scenario_schema())
    return jsonschema.Draft202012Validator(scenario_schema())


@pytest.fixture(scope="module")
def of_study() -> Any:
    jsonschema.Draft202012Validator.check_schema(study_schema())
    return jsonschema.Draft202012Validator(study_schema())


def problems(validator: Any, tables: dict[str, Any]) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(tables)]


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_every_shipped_scenario_passes_as_written_and_resolved(path: Path, of_scenario: Any) -> None:
    assert problems(of_scenario, tomllib.loads(path.read_text())) == []
    assert problems(of_scenario, load_scenario(path).as_tables()) == []


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_every_shipped_study_passes(path: Path, of_study: Any) -> None:
    assert problems(of_study, tomllib.loads(path.read_text())) == []


def test_there_are_files_to_check() -> None:
    assert len(SCENARIOS) > 10
    assert len(STUDIES) > 10


@pytest.mark.parametrize(
    "wrong",
    [
        "rounds = 0",
        "raunds = 3",
        '[[fleet]]\nprofile = "tablet"',
        "[[fleet]]\ncount = 3\nlow_soc = 2.0",
        '[server]\non_lapse = "stop"',
        '[net]\nkind = "mpl"',
        '[net]\nkind = "mlp"\nhiden = [3]',
        '[training]\nschedule = "sine"',
        "[[outages]]\nevery_s = 3.0",
        "[study]\nseeds = 3",
    ],
)
def test_mistakes_are_found(wrong: str, of_scenario: Any) -> None:
    assert problems(of_scenario, tomllib.loads(wrong)) != []


def test_a_study_must_have_its_table_and_known_keys(of_study: Any) -> None:
    assert problems(of_study, {"rounds": 3}) != []
    assert problems(of_study, {"study": {"base": "x.toml", "sedes": 3}}) != []
    nested = (
        '[study]\nbase = "x.toml"\nseeds = [1, 2]\n[study.grid]\ntraining.batch_size = [1, 2]\n"rounds" = [3]'
    )
    assert problems(of_study, tomllib.loads(nested)) == []


def properties(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(node, dict):
        for name, about in node.get("properties", {}).items():
            yield f"{path}.{name}", about
        for name, inner in node.items():
            yield from properties(inner, f"{path}/{name}")
    elif isinstance(node, list):
        for at, inner in enumerate(node):
            yield from properties(inner, f"{path}/{at}")


def test_every_key_has_a_description() -> None:
    found = list(properties(study_schema()))
    assert len(found) > 200
    assert [path for path, about in found if not about.get("description")] == []


def test_the_reference_has_every_key_with_type_and_meaning() -> None:
    tables = {table.name: table for table in key_tables()}
    assert {
        "",
        "server",
        "server.eligibility",
        "fleet",
        "fleet.power",
        "cells",
        "outages",
        "telemetry",
    } <= set(tables)
    assert {"battery tapered", "strategy fdms", "data parquet"} <= set(tables)
    deadline = next(key for key in tables["server"].keys if key.name == "deadline_s")
    assert (deadline.type, deadline.default, deadline.unit) == ("number > 0", "120.0", "s")
    for table in tables.values():
        for key in table.keys:
            assert key.meaning, f"{table.name}.{key.name}"
            assert key.type != "any value" or key.name in ("arguments",), f"{table.name}.{key.name}"


def in_words(about: dict[str, Any], definitions: dict[str, Any]) -> str:
    """Say what a JSON schema takes in the words of the reference."""
    if "x-fdsim-family" in about:
        return f"table with a kind, see `fdsim list keys {about['x-fdsim-family']}`"
    if "$ref" in about:
        return in_words(definitions[about["$ref"].rsplit("/", 1)[-1]], definitions)
    if "enum" in about or "const" in about:
        return " or ".join(json.dumps(value) for value in about.get("enum", [about.get("const")]))
    if choices := about.get("anyOf") or about.get("oneOf"):
        told = [in_words(choice, definitions) for choice in choices if choice.get("type") != "null"]
        return " or ".join(dict.fromkeys(told))
    if about.get("type") == "array":
        return f"list of {in_words(about.get('items') or about['prefixItems'][0], definitions)}"
    words = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false"}
    signs = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}
    bounds = ", ".join(f"{sign} {about[key]:g}" for key, sign in signs.items() if key in about)
    word = {**words, "object": "table"}.get(about.get("type", ""), "any value")
    return f"{word} {bounds}".strip()


def test_the_reference_says_of_every_key_what_the_validators_schema_says() -> None:
    """The reference is read off the fields, the schema off the validator that pydantic builds of them."""
    compared = 0
    for table in [*key_tables(), *tables_of(StudyTable, "study")]:
        schema = table.model.model_json_schema()
        keys = {key.name: key for key in table.keys}
        assert set(schema["properties"]) - set(keys) <= {"kind"}
        for name, key in keys.items():
            about, place = schema["properties"][name], f"{table.name}.{name}"
            assert key.type == in_words(about, schema.get("$defs", {})), place
            assert key.required == (name in schema.get("required", [])), place
            assert key.meaning == about.get("description"), place
            given = about.get("default")
            plain = given is not None and not isinstance(given, dict) and given not in ([], "")
            assert (json.loads(key.default) if key.default else None) == (given if plain else None), place
            compared += 1
    assert compared > 300


@pytest.mark.parametrize("columns", ["60", "80", "200"])
def test_the_list_of_keys_is_never_cut(
    columns: str, fdsim: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    monkeypatch.setattr("shutil.get_terminal_size", lambda fallback: os.terminal_size((int(columns), 24)))
    shown = fdsim("list", "keys").out
    assert "…" not in shown.replace("module:Class…", "")
    words = " ".join(shown.split())
    for table in key_tables():
        for key in table.keys:
            assert " ".join(key.meaning.split()) in words, f"{table.name}.{key.name}"


def test_one_table_or_family_can_be_listed(fdsim: Callable[..., Any]) -> None:
    server = fdsim("list", "keys", "server").out
    assert "deadline_s = 120.0: number > 0, s" in server
    assert "[server.eligibility]" in server
    assert "[fleet]" not in server
    assert "[battery tapered]" in fdsim("list", "keys", "battery").out
    assert "[study]" in fdsim("list", "keys", "study").out
    wrong = fdsim("list", "keys", "sever")
    assert wrong.exit_code == 2
    assert "did you mean 'server'" in wrong.err


def test_the_verb_prints_both_schemas(fdsim: Callable[..., Any]) -> None:
    assert "study" not in json.loads(fdsim("schema").out)["properties"]
    assert "study" in json.loads(fdsim("schema", "study").out)["properties"]
    assert fdsim("schema", "stduy").exit_code == 2


def test_the_starter_names_its_schema_and_passes_it(tmp_path: Path, fdsim: Callable[..., Any]) -> None:
    fdsim("new", tmp_path / "mine")
    text = (tmp_path / "mine/scenario.toml").read_text()
    first = text.split("\n")[0]
    assert first == "#:schema ./scenario.schema.json"
    schema = json.loads((tmp_path / "mine" / first.split()[1]).read_text())
    assert problems(jsonschema.Draft202012Validator(schema), tomllib.loads(text)) == []
    assert "tunnel" in fdsim("list", "scenarios", tmp_path / "mine").out
