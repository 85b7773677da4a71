"""Scenarios: reading, dumping, hashing, and the schema editors use."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fdsim.errors import ScenarioError
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


@pytest.mark.parametrize(
    "name",
    [
        "../../../escaped",
        "/x",
        "a/b",
        "a\\b",
        "a\x00b",
        "a\nb",
        ".hidden",
        "..",
        "a ",
        "<b>",
        "é\x1b[31m",
        "x" * 101,
    ],
)
def test_names_are_plain_words(name: str) -> None:
    tables = load_scenario(ROOT / "scenarios/quickstart.toml").as_tables()
    with pytest.raises(ScenarioError, match=r"name: "):
        parse_scenario({**tables, "name": name})
    with pytest.raises(ScenarioError, match=r"strategies\[0\].name: "):
        parse_scenario({**tables, "strategies": [{"kind": "full", "name": name}]})


@pytest.mark.parametrize("name", ["stale, model", "fdms (ε = 0.1)", "été_2", "64%-a.b", "友" * 20])
def test_plain_words_are_names_that_a_run_can_have(name: str, tmp_path: Path) -> None:
    from fdsim.telemetry.strategy_log import partition

    tables = load_scenario(ROOT / "scenarios/quickstart.toml").as_tables()
    named = parse_scenario({**tables, "name": name, "strategies": [{"kind": "full", "name": name}]})
    (tmp_path / named.name).mkdir()
    (tmp_path / partition(named.strategies[0].label)).mkdir()


@pytest.mark.parametrize("length", [61, 200, 5_000])
def test_names_that_a_folder_could_not_have_are_refused_before_the_run(length: int) -> None:
    tables = load_scenario(ROOT / "scenarios/quickstart.toml").as_tables()
    with pytest.raises(ScenarioError, match=r"strategies\[0\].name: "):
        parse_scenario({**tables, "strategies": [{"kind": "full", "name": "友" * length}]})
