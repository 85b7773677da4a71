"""The schema takes what the reader takes: every shipped file passes, mistakes do not, and every key is explained."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fdsim.scenario import load_scenario
from fdsim.scenario.reference import key_tables
from fdsim.scenario.schema import scenario_schema
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
