"""`fdsim study` and `fdsim compare` as people type them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import fdsim
from fdsim.cli.app import main
from fdsim.studies.folder import read_study

STUDY = (
    '[study]\nbase = "base.toml"\nseeds = 2\n'
    '[study.cases.plain]\n[study.cases.near]\n"training.proximal_mu" = 0.5\n'
    '[study.grid]\n"training.learning_rate" = [0.1]\n'
)


def fdsim_says(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    monkeypatch.setattr("sys.argv", ["fdsim", *words])
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as stop:
        main()
    told = capsys.readouterr()
    return int(stop.value.code or 0), told.out + told.err


def test_from_plan_to_comparison(
    write_study: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan alone, the study, the same command again, its tables in pandas, and the comparison on its own."""
    path, out = str(write_study(STUDY)), tmp_path / "out"
    monkeypatch.chdir(tmp_path)

    code, told = fdsim_says(
        ["study", path, "--out", str(out), "--dry-run", "--workers", "2"], monkeypatch, capsys
    )
    assert code == 0
    assert "4 trials (2 seeds), 8 strategy runs, 2 traces; 0 complete, 4 to run" in told
    assert "with 2 at a time" in told
    assert told.count("(shared)") == 2
    # What all trials share is said once, and every trial's name is whole, on one line.
    assert "2 strategies" in told.splitlines()[0]
    assert len(re.findall(r"^│ (?:plain|near) .*seed=\d+ +│", told, flags=re.MULTILINE)) == 4
    assert not out.exists()

    code, told = fdsim_says(["study", path, "--out", str(out), "--workers", "2"], monkeypatch, capsys)
    assert code == 0, told
    assert "[4/4]" in told
    assert "case = near" in told
    assert "paired on seed and trace" in told
    assert (out / "report.html").exists()

    code, told = fdsim_says(["study", path, "--out", str(out)], monkeypatch, capsys)
    assert code == 0
    assert "4 of 4 trials already complete" in told

    study = fdsim.open_study(out)
    rounds = study.rounds
    assert len(rounds) == 4 * 2 * 5
    assert set(rounds["case"]) == {"plain", "near"}
    assert set(rounds["seed"]) == {1, 2}
    assert study.swept == ["case", "training.learning_rate", "training.proximal_mu"]
    assert rounds.groupby("case", observed=True)["training.proximal_mu"].first().to_dict() == {
        "near": 0.5,
        "plain": 0.0,
    }

    words = [
        "compare",
        str(out),
        "--by",
        "case",
        "--against",
        "plain",
        "--target",
        "0.3",
        "--out",
        "table.csv",
    ]
    code, told = fdsim_says(words, monkeypatch, capsys)
    assert code == 0
    assert "Δ final to plain" in told
    table = pd.read_csv("table.csv")
    assert set(table["case"]) == {"plain", "near"}
    assert set(table["target_accuracy"]) == {0.3}
    assert table["same_trace"].all()

    runs = [str(out / trial["folder"]) for trial in read_study(out)["trials"]]
    code, told = fdsim_says(["compare", *runs], monkeypatch, capsys)
    assert code == 0
    assert "training.proximal_mu = 0.5" in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["study", "gone.toml"], "there is no file 'gone.toml'"),
        (["study", "STUDY", "--set", "study.grid.nonsense=[1]"], "nonsense: there is no such key"),
        (
            ["study", "STUDY", "--set", "study.grid.training.learning_rate=[0.1,-1]"],
            "-1 must be greater than 0",
        ),
        (["study", "STUDY", "--out", "file"], "file: results cannot be written there"),
        (["study", "STUDY", "--executor", "slurm"], "no executor called 'slurm'"),
        (
            ["study", "STUDY", "--executor", "ray", "--address", "127.0.0.1:1"],
            "no answer from 127.0.0.1, port 1",
        ),
        (["run", "BASE", "--shards", "2"], "--shards: is for a Ray cluster. add --executor ray"),
        (
            ["run", "BASE", "--executor", "ray", "--address", "127.0.0.1:1"],
            "no answer from 127.0.0.1, port 1",
        ),
        (["compare", "gone"], "neither a run nor a study"),
    ],
)
def test_wrong_input_is_told_in_one_paragraph(
    write_study: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    told: str,
) -> None:
    if "ray" in words:
        pytest.importorskip("ray")
    path: Path = write_study(STUDY)
    names = {"STUDY": str(path), "BASE": str(path.with_name("base.toml"))}
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    code, text = fdsim_says([names.get(word, word) for word in words], monkeypatch, capsys)
    assert code == 2
    errors = [line for line in text.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert told in errors[0]
    assert "Traceback" not in text


def test_a_damaged_plan_is_named(tmp_path: Path, write_study: Any, monkeypatch: Any, capsys: Any) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "study.json").write_text("{")
    code, text = fdsim_says(["study", str(write_study(STUDY)), "--out", str(out)], monkeypatch, capsys)
    assert code == 2
    assert "study.json: the file is damaged" in text
    (out / "study.json").write_text(json.dumps({"study_version": 99, "trials": []}))
    code, text = fdsim_says(["study", str(write_study(STUDY)), "--out", str(out)], monkeypatch, capsys)
    assert code == 2
    assert "written by a newer fdsim" in text


def test_a_trial_whose_strategies_failed_is_marked_and_shown(
    tmp_path: Path, write_study: Any, monkeypatch: Any, capsys: Any
) -> None:
    path = str(
        write_study('[study]\nbase = "base.toml"\n[study.grid]\n"training.learning_rate" = [0.1, 1e30]\n')
    )
    out = tmp_path / "out"
    code, told = fdsim_says(["study", path, "--out", str(out), "--workers", "1"], monkeypatch, capsys)
    assert code == 3, told
    assert "complete, but failed: dropout, fdms" in told
    assert "strategies failed in 1 of 2 trials" in told
    about = read_study(out)
    assert about["status"] == "complete with failures"
    assert sorted(trial["status"] for trial in about["trials"]) == ["complete", "complete with failures"]
    assert "2 trials, 1 complete, 1 complete with failures." in (out / "report.html").read_text()
    # They are not run again, and still shown.
    code, told = fdsim_says(["study", path, "--out", str(out), "--workers", "1"], monkeypatch, capsys)
    assert code == 3
    assert "2 of 2 trials already complete" in told
    code, told = fdsim_says(["study", path, "--out", str(out), "--dry-run"], monkeypatch, capsys)
    assert code == 0
    assert "complete with failures" in told
