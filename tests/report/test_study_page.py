"""The report of a study: cases side by side, bands over seeds, the comparison with its intervals."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fdsim.errors import RunFolderError
from fdsim.report import write_report
from fdsim.report.study_data import case_name, gather_study


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


def test_the_course_of_learning_is_in_headline_tiles_tables_and_a_figure(study: Path, tmp_path: Path) -> None:
    """Each number is that of `fdsim compare`, the mean over the seeds."""
    page, figures = page_of(study, tmp_path / "report.html")
    rows = gather_study(study).comparison.table
    rows = rows[(rows["participation.alpha"] == 0.6) & (rows["strategy"] == "fdms")].set_index("measure")
    mean = rows["mean"].astype(float)
    gap = mean["gap_to_full"]
    side = "behind" if gap > 0 else "ahead of"
    told = f"on the way {abs(100 * gap):.1f} points {side} full on average, {mean['worst_accuracy']:.1%} at worst"
    assert told in page
    views = figures["course-by-case"]["payload"]["views"]
    assert list(views) == ["worst_accuracy", "gap_to_full", "hours_below_full"]
    for measure, view in views.items():
        cells = list(zip(*view["table"]["values"], strict=True))
        (cell,) = [cell for cell in cells if cell[:2] == ("alpha = 0.6", "fdms")]
        assert cell[2] == pytest.approx(mean[measure])
    table = re.search(r'id="table-comparison-2".*?</thead>', page, re.S)
    assert table is not None
    for column in ("worst after ⅓", "mean gap to full", "hours &lt; 90 % of full"):
        assert column in table.group()


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


def test_unordered_cases_are_not_joined_and_points_stand_side_by_side(study: Path, tmp_path: Path) -> None:
    _, figures = page_of(study, tmp_path / "a.html")
    traces = figures["final-by-case"]["payload"]["traces"]
    assert {trace["mode"] for trace in traces} == {"lines+markers"}  # 0.3 and 0.6 are numbers in order
    assert len({x for trace in traces for x in trace["x"]}) == 6
    folder = Path(shutil.copytree(study, tmp_path / "study"))
    about = json.loads((folder / "study.json").read_text())
    for trial in about["trials"]:
        trial["case"] = {0.3: "near", 0.6: "far"}[trial["settings"]["participation.alpha"]]
    (folder / "study.json").write_text(json.dumps(about))
    page, figures = page_of(folder, tmp_path / "b.html")
    assert {trace["mode"] for trace in figures["final-by-case"]["payload"]["traces"]} == {"markers"}
    for case in ("near, alpha = 0.3", "far, alpha = 0.6"):
        assert f"{case}: fdms ends at" in page


def test_a_pair_of_swept_keys_has_a_heat_map(study: Path, tmp_path: Path) -> None:
    """Two learning rates that made no difference, beside the two alphas: a grid of four."""
    folder = Path(shutil.copytree(study, tmp_path / "study"))
    about = json.loads((folder / "study.json").read_text())
    more = json.loads(json.dumps(about["trials"]))
    for rate, trials in ((0.1, about["trials"]), (0.2, more)):
        for trial in trials:
            trial["settings"]["training.learning_rate"] = rate
    about["trials"] += more
    (folder / "study.json").write_text(json.dumps(about))
    page, figures = page_of(folder, tmp_path / "report.html")
    views = figures["pair-1"]["payload"]["views"]
    assert list(views) == ["full", "fdms", "dropout"]
    (trace,) = views["fdms"]["traces"]
    assert (trace["x"], trace["y"]) == (["0.3", "0.6"], ["0.1", "0.2"])
    assert trace["z"][0] == trace["z"][1]
    assert None not in trace["z"][0]
    assert "Final accuracy by participation.alpha and training.learning_rate" in page


def test_many_cases_are_counted_in_the_headline(study: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(study, tmp_path / "study"))
    about = json.loads((folder / "study.json").read_text())
    whole = []
    for case in range(3):
        for trial in json.loads(json.dumps(about["trials"])):
            whole.append({**trial, "case": f"case {case}"})
    (folder / "study.json").write_text(json.dumps({**about, "trials": whole}))
    page, _ = page_of(folder, tmp_path / "report.html")
    counted = r"Over 6 cases fdms ends between .* against dropout it is ahead in \d, behind in \d"
    assert re.search(counted, page)
    assert re.search(
        r"Hardest on the way is case \d.*: \d+\.\d points (behind|ahead of) full on average", page
    )


def test_bands_stay_between_nothing_and_everything(study: Path) -> None:
    from fdsim.report.curves import LEARNING, PlottedCurve, series_of

    curve = gather_study(study).curves[0]
    seeds = [table.assign(test_accuracy=value) for table, value in zip(curve.seeds, (0.0, 1.0), strict=True)]
    series = series_of(PlottedCurve("a", seeds, curve.look), LEARNING)
    assert series is not None
    band = series["y"]["accuracy"]
    assert (set(band["lo"]), set(band["mid"]), set(band["hi"])) == ({0.0}, {0.5}, {1.0})


def test_the_pages_of_a_study_share_plotly(study: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(study, tmp_path / "study"))
    whole, trial = write_report(folder), write_report(folder / "trials" / "0")
    (shared,) = folder.glob("plotly-*.min.js")
    assert f'<script src="{shared.name}"></script>' in whole.read_text()
    assert f'<script src="../../{shared.name}"></script>' in trial.read_text()
    assert max(page.stat().st_size for page in (whole, trial)) < 1e6
    assert "plotly.js v" in write_report(folder, tmp_path / "alone.html").read_text()
