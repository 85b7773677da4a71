"""Whatever a run is called, and whatever its files say, no verb lets it steer the terminal."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fdsim.pipeline import RunChoices, run_scenario
from fdsim.scenario import load_scenario
from fdsim.telemetry.strategy_log import partition

SCENARIO = """
name = "tiny"
rounds = 3
net = "mlp"
data = { kind = "digits" }
training = { local_epochs = 1, batch_size = 20, learning_rate = 0.1 }
participation = { kind = "bernoulli", clients = 4, active_prob = 0.7 }
strategies = ["dropout", "fdms"]
telemetry = { similarity_every = 1 }
"""
#: A clear screen, a title of the window, a bell, a carriage return, text from right to left, and markup of Rich.
HOSTILE = "a\x1b[2J\x1b]0;owned\x07\r\u202eb[/red][link=http://x]"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_scenario(load_scenario(SCENARIO), tmp_path_factory.mktemp("runs") / "run", RunChoices())


@pytest.fixture
def hostile(made: Path, tmp_path: Path) -> Path:
    """A copy of a run in which every text is hostile: name, label, message, versions, a setting."""
    run = tmp_path / "runs" / "run"
    shutil.copytree(made, run)
    facts = json.loads((run / "run.json").read_text())
    facts["name"] = facts["message"] = facts["started_at"] = facts["accelerator"] = HOSTILE
    facts["strategies"] = {HOSTILE: facts["strategies"]["dropout"], "fdms": facts["strategies"]["fdms"]}
    facts["strategies"][HOSTILE] |= {"status": "failed", "message": HOSTILE}
    facts["versions"]["torch"] = HOSTILE
    (run / "run.json").write_text(json.dumps(facts))
    for table in ("rounds", "clients"):
        (run / table / "strategy=dropout").rename(run / table / partition(HOSTILE))
    text = (run / "scenario.toml").read_text().replace('name = "tiny"', f"name = {json.dumps(HOSTILE)}")
    (run / "scenario.toml").write_text(text.replace("\\u007f", ""))
    return run


VERBS = [
    "show",
    "list runs",
    "compare",
    "theory",
    "report",
    "verify",
    "verify --quick",
    "explain",
    "validate",
]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.filterwarnings("ignore::fdsim.errors.RunFolderWarning")
def test_no_verb_prints_what_a_file_would_do_to_the_terminal(
    verb: str, hostile: Path, fdsim: Callable[..., Any]
) -> None:
    given = {
        "list runs": hostile.parent,
        "explain": hostile / "scenario.toml",
        "validate": hostile / "scenario.toml",
    }
    answer = fdsim(*verb.split(), given.get(verb, hostile))
    said = (answer.out + answer.err).replace("\n", "")
    assert said
    assert said.isprintable(), [each for each in said if not each.isprintable()]
    assert "This is a bug" not in said


def test_a_scenario_with_markup_in_its_first_line_is_listed(
    tmp_path: Path, fdsim: Callable[..., Any]
) -> None:
    (tmp_path / "s.toml").write_text("# [/red]\x1b[2J\n")
    (tmp_path / "not_text.toml").write_bytes(b"\xff\xfe")
    answer = fdsim("list", "scenarios", tmp_path)
    assert answer.exit_code == 0, answer.err
    assert "[/red]" in answer.out
    assert answer.out.replace("\n", "").isprintable()


def test_a_comparison_is_inert_in_a_spreadsheet_and_in_latex(
    made: Path, tmp_path: Path, fdsim: Callable[..., Any]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(made, run)
    facts = json.loads((run / "run.json").read_text())
    labels = {"=HYPERLINK(1)": "dropout", "a\n\\input{/etc/passwd}": "fdms"}
    facts["strategies"] = {new: facts["strategies"][old] for new, old in labels.items()}
    (run / "run.json").write_text(json.dumps(facts))
    for table in ("rounds", "clients"):
        for new, old in labels.items():
            (run / table / f"strategy={old}").rename(run / table / partition(new))
    files = [tmp_path / f"out.{kind}" for kind in ("csv", "tex", "parquet")]
    words = [word for file in files for word in ("--out", file)]
    answer = fdsim("compare", run, "--against", "=HYPERLINK(1)", *words)
    assert answer.exit_code == 0, answer.err
    cells = [cell for line in files[0].read_text().splitlines() for cell in line.split(",")]
    assert not [cell for cell in cells if cell.lstrip('"')[:1] in ("=", "@", "+")]
    assert "'=HYPERLINK(1)" in files[0].read_text()
    assert "\\input" not in files[1].read_text()
    for line in files[1].read_text().splitlines():
        assert line.startswith(("%", "\\")) or "&" in line or not line, line
