"""Scenarios: reading, dumping, hashing, and the schema editors use."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fdsim.scenario import load_scenario, parse_scenario

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = sorted(path for path in (ROOT / "scenarios").rglob("*.toml") if "[study]" not in path.read_text())


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_shipped_scenario_reads_dumps_and_reads_the_same(path: Path, tmp_path: Path) -> None:
    scenario = load_scenario(path)
    dumped = scenario.as_toml()
    (tmp_path / "again.toml").write_text(dumped)
    again = load_scenario(tmp_path / "again.toml")
    assert again == scenario
    assert again.as_toml() == dumped
    assert again.content_hash == scenario.content_hash


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_shipped_scenario_opens_with_its_question_and_command(path: Path) -> None:
    head = path.read_text().split("\n\n")[0]
    assert head.startswith("# ")
    assert f"fdsim run {path.relative_to(ROOT)}" in head


def test_the_hash_follows_the_content_not_the_spelling(tmp_path: Path) -> None:
    text = (ROOT / "scenarios/quickstart.toml").read_text()
    (tmp_path / "spelt.toml").write_text(
        text.replace("learning_rate = 0.1\n", "learning_rate = 1e-1 # the same\n", 1)
    )
    (tmp_path / "other.toml").write_text(text.replace("learning_rate = 0.1\n", "learning_rate = 0.2\n", 1))
    original = load_scenario(ROOT / "scenarios/quickstart.toml").content_hash
    assert load_scenario(tmp_path / "spelt.toml").content_hash == original
    assert load_scenario(tmp_path / "other.toml").content_hash != original


def test_overrides_are_part_of_the_hash() -> None:
    path = ROOT / "scenarios/quickstart.toml"
    assert load_scenario(path, ["seed=2"]).content_hash != load_scenario(path).content_hash


def test_a_scenario_can_be_made_in_python() -> None:
    tables = load_scenario(ROOT / "scenarios/quickstart.toml").as_tables()
    assert parse_scenario(tables).clients == 20


def test_the_schema_is_json_and_knows_the_kinds(fdsim: Callable[..., object]) -> None:
    schema = json.loads(fdsim("schema").out)
    assert {"name", "rounds", "data", "net", "training", "fleet", "strategies"} <= set(schema["properties"])
    assert '"fdms"' in json.dumps(schema)
    defined = set(schema.get("$defs", {}))
    text = json.dumps(schema)
    used = {part.split('"')[0] for part in text.split("#/$defs/")[1:]}
    assert used <= defined
