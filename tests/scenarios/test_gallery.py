"""The shipped scenarios run, say what they found, and have their picture in the gallery."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest

from fdsim.pipeline import run_scenario
from fdsim.scenario import load_scenario

ROOT = Path(__file__).resolve().parents[2]
GALLERY = sorted(p for p in (ROOT / "scenarios").glob("*.toml") if not p.name.endswith(".study.toml"))
PAPER = sorted((ROOT / "scenarios/paper").glob("*.toml"))

#: What keeps three rounds of the large ones short.
SHORTER = {
    "ten_thousand_clients": [
        "fleet.0.count=300",
        "server.selection.clients_per_round=20",
        "data.train_samples=6000",
        "data.test_samples=200",
    ],
    "million_clients": [
        "participation.clients=2000",
        "participation.clients_per_round=20",
        "data.train_samples=3000",
    ],
    "large_net_sketches": ["net.hidden=[64]"],
}


@pytest.fixture(autouse=True)
def _from_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths in scenarios count from the repository's root, where the commands in their heads are typed."""
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("path", GALLERY, ids=lambda path: path.stem)
def test_three_rounds_of_it_run(path: Path, tmp_path: Path) -> None:
    scenario = load_scenario(path, ["rounds=3", *SHORTER.get(path.stem, [])])
    folder = run_scenario(scenario, tmp_path / "run")
    rounds = pd.read_parquet(folder / "rounds")
    assert rounds.groupby("strategy", observed=True).size().to_dict() == {
        s.label: 3 for s in scenario.strategies
    }
    last = rounds[rounds["round"] == 2]
    assert last["test_accuracy"].between(0, 1).all()


@pytest.mark.parametrize("path", [p for p in GALLERY if p.stem != "quickstart"], ids=lambda path: path.stem)
def test_its_head_asks_and_answers_with_numbers(path: Path) -> None:
    head = path.read_text(encoding="utf-8").split("\n\n")[0]
    assert head.splitlines()[0].endswith("?")
    found = head.partition("# Found")[2]
    assert len(re.findall(r"0\.\d\d|\d+ %", found)) >= 3


def test_every_scenario_is_in_the_gallery_with_its_picture() -> None:
    page = (ROOT / "scenarios/README.md").read_text(encoding="utf-8")
    for path in GALLERY:
        assert f"({path.name})" in page
        if path.stem != "quickstart":
            assert f"](pictures/{path.stem}.png)" in page
            assert (ROOT / "scenarios/pictures" / f"{path.stem}.png").is_file()


def test_the_made_up_phones_are_what_the_importer_makes_of_them(tmp_path: Path) -> None:
    from fdsim.trace.availability import read_availability, write_availability
    from fdsim.trace.importers.flash import read_flash

    traces = ROOT / "scenarios/traces"
    assert len(json.loads((traces / "made_up_phones.json").read_text(encoding="utf-8"))) == 20
    write_availability(tmp_path / "again.parquet", read_flash(traces / "made_up_phones.json"), "test")
    again, shipped = (
        read_availability(p) for p in (tmp_path / "again.parquet", traces / "made_up_phones.parquet")
    )
    assert len(again) == len(shipped) == 20
    for one, other in zip(again, shipped, strict=True):
        assert {state: found.tolist() for state, found in one.states.items()} == {
            state: found.tolist() for state, found in other.states.items()
        }


@pytest.mark.parametrize("path", PAPER, ids=lambda path: path.name)
def test_the_papers_files_name_their_command_and_are_sound(path: Path, tmp_path: Path) -> None:
    """Study trials are made and validated with made-up images standing in for those that need a download."""
    from fdsim.studies.plan import plan_study
    from fdsim.studies.study_file import load_study

    head = path.read_text(encoding="utf-8").split("\n\n")[0]
    name = path.relative_to(ROOT)
    if not path.name.endswith(".study.toml"):
        assert f"fdsim run {name}" in head
        assert load_scenario(path).strategies
        return
    assert f"fdsim study {name}" in head
    images = ["data.kind=synthetic", "data.shape=[3,32,32]", "data.train_samples=50000"]
    plan = plan_study(load_study(path, ["study.seeds=2", *images]))
    assert len(plan.trials) >= 2
    assert all(len(trial.scenario.strategies) >= 4 for trial in plan.trials)
