"""Wrong scenario files: each gives exit code 2 and one paragraph that names the place and helps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

GOOD = """
name = "small"
rounds = 3
[data]
kind = "digits"
partition = { kind = "clustered", clusters = 5, labels_per_cluster = 2, samples_per_client = 20 }
[net]
kind = "mlp"
[training]
local_epochs = 1
batch_size = 10
learning_rate = 0.1
[server]
deadline_s = 120
round_interval_s = 1800
[[fleet]]
profile = "midrange_phone"
count = 10
[[strategies]]
kind = "fdms"
"""

FLEET = '[[fleet]]\nprofile = "midrange_phone"\ncount = 10\n'
RATIO = '[participation]\nkind = "fixed_ratio"\nclients = 10\nalpha = 0.5\n'

#: what is wrong → (text to replace, by what, words the answer must hold)
WRONG: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "unknown key": (
        "batch_size = 10",
        "batchsize = 10",
        ("line", "training.batchsize", "did you mean 'batch_size'"),
    ),
    "unknown table": ("[net]", "[nets]", ("nets", "did you mean 'net'")),
    "wrong sign": (
        "learning_rate = 0.1",
        "learning_rate = -0.1",
        ("training.learning_rate", "-0.1", "greater than 0"),
    ),
    "wrong type": ("rounds = 3", 'rounds = "three"', ("line 3", "rounds", "whole number")),
    "zero rounds": ("rounds = 3", "rounds = 0", ("rounds", "greater than 0")),
    "alpha of one": (FLEET, RATIO.replace("0.5", "1.0"), ("participation.alpha", "1.0", "less than 1")),
    "negative alpha": (FLEET, RATIO.replace("0.5", "-0.5"), ("participation.alpha", "-0.5")),
    "two sources of participation": (FLEET, FLEET + RATIO, ("[[fleet]]", "[participation]", "one source")),
    "no source of participation": (FLEET, "", ("who takes part",)),
    "no clients": ("count = 10", "count = 0", ("fleet[0].count", "0")),
    "negative deadline": ("deadline_s = 120", "deadline_s = -120", ("server.deadline_s", "-120")),
    "wrong unit": (
        "deadline_s = 120",
        "deadline_ms = 120000",
        ("server.deadline_ms", "did you mean 'deadline_s'"),
    ),
    "battery in the wrong unit": (
        "count = 10",
        "count = 10\nbattery = { capacity_wh = 4000 }",
        ("battery", "capacity_wh", "4000"),
    ),
    "unknown profile": (
        "midrange_phone",
        "midrange_fone",
        ("midrange_fone", "did you mean 'midrange_phone'"),
    ),
    "unknown strategy": ('kind = "fdms"', 'kind = "fmds"', ("strategies[0]", "did you mean 'fdms'")),
    "unknown strategy key": (
        'kind = "fdms"',
        'kind = "fdms"\nmin_similarty = 0.5',
        ("did you mean 'min_similarity'",),
    ),
    "no strategies": ('[[strategies]]\nkind = "fdms"', "", ("strategies", "missing")),
    "same strategy twice": (
        'kind = "fdms"',
        'kind = "fdms"\n[[strategies]]\nkind = "fdms"',
        ("two strategies", "name"),
    ),
    "unknown data": ('kind = "digits"', 'kind = "digit"', ("data", "did you mean 'digits'")),
    "unknown net": ('kind = "mlp"', 'kind = "mpl"', ("net", "did you mean 'mlp'")),
    "no kind": ('kind = "mlp"', "", ("net", "no kind")),
    "epochs and steps": (
        "local_epochs = 1",
        "local_epochs = 1\nlocal_steps = 2",
        ("local_epochs", "local_steps"),
    ),
    "neither epochs nor steps": ("local_epochs = 1", "", ("local_epochs", "local_steps")),
    "broken TOML": ("rounds = 3", "rounds = = 3", ("not valid TOML", "line 3")),
    "more clients than data": ("count = 10", "count = 5000", ("5000", "samples")),
    "fewer clients than clusters": ("count = 10", "count = 3", ("3", "cluster")),
    "more labels than there are": ("labels_per_cluster = 2", "labels_per_cluster = 3", ("labels",)),
    "own class that is not there": ('kind = "mlp"', 'kind = "my_nets:Big"', ("my_nets", "current folder")),
    "missing trace file": (
        FLEET,
        '[participation]\nkind = "trace"\npath = "gone.parquet"\n',
        ("gone.parquet",),
    ),
    "missing base": ('name = "small"', 'extends = "gone.toml"\nname = "small"', ("gone.toml", "extends")),
    "not a number": ("learning_rate = 0.1", "learning_rate = nan", ("training.learning_rate", "finite")),
    "true for one": ("rounds = 3", "rounds = true", ("line 3", "rounds", "True is not a whole number")),
    "true for a number": (
        "learning_rate = 0.1",
        "learning_rate = true",
        ("training.learning_rate", "True is not a number"),
    ),
    "true in a list": ('kind = "mlp"', 'kind = "mlp"\nhidden = [true]', ("net.hidden", "whole number")),
    "a net beyond memory": (
        'kind = "mlp"',
        'kind = "mlp"\nhidden = [1_000_000_000_000_000]',
        ("net", "7.5e+16 parameters", "TB", "smaller net"),
    ),
    "epochs without end": ("local_epochs = 1", "local_epochs = 9_000_000_000_000", ("at most 1000000000",)),
    "data beyond memory": (
        'kind = "digits"',
        'kind = "synthetic"\ntrain_samples = 9_000_000_000_000_000',
        ("data.train_samples", "TB", "fewer samples"),
    ),
    "images beyond memory": (
        'kind = "digits"',
        'kind = "synthetic"\nshape = [1, 1_000_000, 1_000_000]',
        ("data", "TB", "smaller samples"),
    ),
    "negative seed": ("rounds = 3", "rounds = 3\nseed = -1", ("seed", "-1")),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_each_wrong_scenario_gives_one_helpful_paragraph(
    wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fdsim: Callable[..., object]
) -> None:
    old, new, words = WRONG[wrong]
    text = GOOD.replace(old, new)
    assert text != GOOD
    (tmp_path / "bad.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    for verb in (["validate"], ["run", "--out", "never"]):
        answer = fdsim(verb[0], "bad.toml", *verb[1:])
        assert answer.exit_code == 2, answer
        assert answer.err.startswith("error: ")
        assert "Traceback" not in answer.err
        lines = answer.err.strip().splitlines()
        assert len(lines) == 1 or lines[0].endswith(f"{len(lines) - 1} problems:"), answer.err
        assert all(word in answer.err for word in words), answer.err
    assert not Path("never").exists()


def test_the_good_one_is_good(tmp_path: Path, fdsim: Callable[..., object]) -> None:
    (tmp_path / "good.toml").write_text(GOOD)
    answer = fdsim("validate", tmp_path / "good.toml")
    assert answer.exit_code == 0, answer.err
    assert "10 clients, 3 rounds" in answer.out


def test_a_missing_file_names_what_there_is(tmp_path: Path, fdsim: Callable[..., object]) -> None:
    (tmp_path / "good.toml").write_text(GOOD)
    answer = fdsim("run", tmp_path / "goood.toml")
    assert answer.exit_code == 2
    assert "good.toml" in answer.err


def test_an_override_that_is_wrong_is_named(tmp_path: Path, fdsim: Callable[..., object]) -> None:
    (tmp_path / "good.toml").write_text(GOOD)
    answer = fdsim("validate", tmp_path / "good.toml", "--set", "training.batch_size=-3")
    assert answer.exit_code == 2
    assert "--set training.batch_size=-3" in answer.err


def test_every_problem_has_a_line_with_its_place(tmp_path: Path, fdsim: Callable[..., object]) -> None:
    wrong = {
        "rounds = 3": "rounds = 0",
        "batch_size = 10": "batchsize = 10",
        "learning_rate = 0.1": "learning_rate = -1",
        "deadline_s = 120": "deadline_s = 0",
        "round_interval_s = 1800": "round_interval_s = -1",
        "count = 10": "count = 0",
        'kind = "mlp"': 'kind = "mpl"',
        'kind = "fdms"': 'kind = "fmds"',
    }
    text = GOOD
    for old, new in wrong.items():
        text = text.replace(old, new)
    (tmp_path / "bad.toml").write_text(text)
    answer = fdsim("validate", tmp_path / "bad.toml")
    first, *rest = answer.err.strip().splitlines()
    assert first.endswith("8 problems:"), answer.err
    assert len(rest) == 8
    numbers = {
        at
        for at, line in enumerate(text.splitlines(), 1)
        for new in wrong.values()
        if line == new or line in new
    }
    for line in rest:
        assert int(line.split("line ")[1].split(":")[0]) in numbers | {at - 1 for at in numbers}, line


def test_a_study_is_sent_to_its_own_verb_and_validated(tmp_path: Path, fdsim: Callable[..., object]) -> None:
    (tmp_path / "good.toml").write_text(GOOD)
    study = tmp_path / "two.study.toml"
    study.write_text('[study]\nbase = "good.toml"\nseeds = 2\n[study.grid]\ntraining.batch_size = [5, 10]\n')
    answer = fdsim("run", study)
    assert answer.exit_code == 2
    assert f"use `fdsim study {study}`" in answer.err
    checked = fdsim("validate", study)
    assert checked.exit_code == 0, checked.err
    assert "valid. 4 trials" in checked.out
    study.write_text('[study]\nbase = "good.toml"\nseeds = 2\n[study.grid]\ntraining.batch_size = [5, -1]\n')
    assert fdsim("validate", study).exit_code == 2


def test_batch_norm_is_refused_before_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fdsim: Callable[..., object]
) -> None:
    (tmp_path / "normed_net.py").write_text(
        "from torch import nn\n\nclass Normed(nn.Sequential):\n    def __init__(self):\n"
        "        super().__init__(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, 10))\n"
    )
    text = GOOD.replace('kind = "mlp"', 'kind = "module"\npath = "normed_net:Normed"')
    (tmp_path / "bad.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    answer = fdsim("validate", "bad.toml")
    assert answer.exit_code == 2
    assert "BatchNorm1d" in answer.err
    assert "GroupNorm" in answer.err


def test_over_selection_beyond_the_fleet_is_a_warning(tmp_path: Path, fdsim: Callable[..., object]) -> None:
    (tmp_path / "good.toml").write_text(GOOD)
    random = "server.selection={kind='random', clients_per_round=8}"
    much = fdsim("validate", tmp_path / "good.toml", "--set", random, "--set", "server.over_selection=1.5")
    assert much.exit_code == 0
    assert "warning: server.over_selection: 1.5 × 8 asks for 12 clients, there are 10" in much.err
    fits = fdsim("validate", tmp_path / "good.toml", "--set", random, "--set", "server.over_selection=1.25")
    assert fits.err == ""


def test_an_unknown_verb_is_exit_code_two(fdsim: Callable[..., object]) -> None:
    assert fdsim("fly").exit_code == 2
