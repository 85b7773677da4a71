"""The report of a study: cases side by side, bands over seeds, the comparison with its intervals."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fdsim.errors import RunFolderError
from fdsim.report import write_report
from fdsim.report.study_data import case_name, gather_study


@pytest.fixture(scope="module")
def study(make_run: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two cases of two seeds each, complete."""
    folder = tmp_path_factory.mktemp("study") / "study"
    trials: list[dict[str, Any]] = []
    for alpha in (0.3, 0.6):
        for seed in (0, 1):
            run = make_run(
                seed=seed,
                rounds=3,
                fleet=None,
                participation={"kind": "fixed_ratio", "alpha": alpha, "clients": 8},
                strategies=[{"kind": "full"}, {"kind": "fdms"}, {"kind": "dropout"}],
                telemetry={"similarity_every": 1},
            )
            place = f"trials/{len(trials)}"
            shutil.copytree(run, folder / place)
            trials.append(
                {
                    "id": f"alpha={alpha} seed={seed}",
                    "folder": place,
                    "case": None,
                    "seed": seed,
                    "settings": {"participation.alpha": alpha},
                    "scenario_hash": json.loads((run / "run.json").read_text())["scenario_hash"],
                    "status": "complete",
                }
            )
    about = {"study_version": 1, "name": "alphas", "status": "complete", "swept": ["participation.alpha"]}
    (folder / "study.json").write_text(json.dumps({**about, "trials": trials}))
    (folder / "study.toml").write_text('[study]\nname = "alphas"\n')
    return folder


def page_of(folder: Path, out: Path) -> tuple[str, dict[str, Any]]:
    page = write_report(folder, out).read_text(encoding="utf-8")
    found = re.search(r'id="fdsim-data">(.*?)</script>', page, re.S)
    assert found is not None
    return page, json.loads(found.group(1))["figures"]


def test_cases_have_bands_over_their_seeds(study: Path, tmp_path: Path) -> None:
    page, figures = page_of(study, tmp_path / "report.html")
    accuracy = figures["accuracy"]["payload"]
    assert accuracy["banded"]
    assert {(s["case"], s["name"]) for s in accuracy["series"]} == {
        (case, name) for case in ("alpha = 0.3", "alpha = 0.6") for name in ("full", "fdms", "dropout")
    }
    assert "the mean over 2 seeds, the band one standard deviation" in page
    assert "study of 2 cases × 2 seeds" in page


def test_the_band_is_that_of_the_runs(study: Path) -> None:
    import fdsim

    data = gather_study(study)
    curve = next(c for c in data.curves if (c.case, c.strategy) == ("alpha = 0.6", "dropout"))
    runs = [fdsim.open_run(study / "trials" / str(i)).rounds for i in (2, 3)]
    for mine, run in zip(curve.seeds, runs, strict=True):
        told = run.loc[run["strategy"] == "dropout", "test_accuracy"]
        assert mine["test_accuracy"].tolist() == told.tolist()


def test_strategies_are_compared_with_intervals(study: Path, tmp_path: Path) -> None:
    page, figures = page_of(study, tmp_path / "report.html")
    for number in (1, 2):
        table = re.search(rf'id="table-comparison-{number}".*?</table>', page, re.S)
        assert table is not None
        assert "Δ final to dropout" in table.group()
        row = re.search(r"fdms</th>(.*?)</tr>", table.group(), re.S)
        assert row is not None
        assert re.search(r"[+−]\d\.\d{3} \[[+−]\d\.\d{3}, [+−]\d\.\d{3}\]", row.group(1))
    assert figures["final-by-case"]["payload"]["table"]["columns"][:3] == [
        "case",
        "strategy",
        "final_accuracy",
    ]
    assert "points against dropout (95% interval" in page


def test_a_study_that_goes_on_says_so(study: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(study, tmp_path / "study"))
    about = json.loads((folder / "study.json").read_text())
    about["trials"][3]["status"] = "waiting"
    (folder / "study.json").write_text(json.dumps(about))
    shutil.rmtree(folder / "trials" / "3")
    page, figures = page_of(folder, tmp_path / "report.html")
    assert "Unfinished: 4 trials, 3 complete, 1 waiting." in page
    assert len(figures["accuracy"]["payload"]["series"]) == 6


def test_a_study_that_has_not_begun_gives_one_clear_error(study: Path, tmp_path: Path) -> None:
    folder = tmp_path / "study"
    folder.mkdir()
    shutil.copy(study / "study.json", folder)
    with pytest.raises(RunFolderError, match="no trial of the study has finished a round yet"):
        write_report(folder)


def test_cases_are_named_as_shortly_as_they_can_be() -> None:
    assert case_name({"participation.alpha": 0.3, "rounds": 5}) == "alpha = 0.3, rounds = 5"
    assert case_name({"a.kind": 1, "b.kind": 2}, "night") == "night, a.kind = 1, b.kind = 2"
    assert case_name({}) == ""


def test_compare_writes_its_file_though_nobody_reads_the_table(study: Path, tmp_path: Path) -> None:
    out = tmp_path / "f.csv"
    words = [sys.executable, "-m", "fdsim", "compare", str(study), "--out", str(out)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        assert started.stderr is not None
        started.stdout.close()
        complaints = started.stderr.read()
        assert (started.wait(timeout=120), complaints) == (0, "")
    assert "worst_accuracy" in out.read_text()
