"""A report comes out of every kind of folder that has one, and one clear error out of the others."""

from __future__ import annotations

import html
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fdsim.cli.app import assemble
from fdsim.errors import FdsimError, RunFolderError
from fdsim.report import write_report


def page_of(folder: Path, out: Path) -> str:
    return write_report(folder, out).read_text(encoding="utf-8")


def embedded(page: str) -> dict[str, Any]:
    """The JSON that the page's script reads."""
    found = re.search(r'<script type="application/json" id="fdsim-data">(.*?)</script>', page, re.S)
    assert found is not None
    data: dict[str, Any] = json.loads(found.group(1))
    return data


def copied(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def test_the_page_stands_alone(tiny: Path, tmp_path: Path) -> None:
    page = page_of(tiny, tmp_path / "report.html")
    outside = re.sub(r"<script>.*?</script>", "", page, flags=re.S)
    assert "http://" not in outside.replace("http-equiv", "")
    assert "https://" not in outside
    assert not re.search(r"<(link|img|iframe|script)[^>]+(src|href)=\"(?!data:)", outside)
    assert page.count("plotly.js v") == 1
    assert len(page.encode()) < 8e6


def test_a_complete_run_has_every_figure(tiny: Path, tmp_path: Path) -> None:
    figures = embedded(page_of(tiny, tmp_path / "report.html"))["figures"]
    assert set(figures) >= {
        "accuracy",
        "outcomes",
        "causes-by-hour",
        "causes-by-round",
        "gantt",
        "device",
        "completion-by-group",
        "similarity",
        "stand-ins",
        "friends",
        "substitution-error",
        "pairs",
    }
    assert [row["key"] for row in figures["device"]["payload"]["rows"]] == [
        "soc",
        "link",
        "charger",
        "screen",
    ]


def test_the_page_names_scenario_versions_and_hashes(tiny: Path, tmp_path: Path) -> None:
    page = page_of(tiny, tmp_path / "report.html")
    manifest = json.loads((tiny / "run.json").read_text())
    assert manifest["scenario_hash"] in page
    assert manifest["trace_hash"] in page
    assert f"numpy {manifest['versions']['numpy']}" in page
    assert html.escape((tiny / "scenario.toml").read_text()) in page


def test_it_is_written_into_the_folder_unless_told_otherwise(tiny: Path, tmp_path: Path) -> None:
    folder = copied(tiny, tmp_path)
    assert write_report(folder) == folder / "report.html"
    assert not list(folder.glob(".report*"))


def test_the_same_run_gives_the_same_page(tiny: Path, tmp_path: Path) -> None:
    assert page_of(tiny, tmp_path / "a.html") == page_of(tiny, tmp_path / "b.html")


HOSTILE = '</script><script>alert("x")</script><img src=x onerror=alert(1)>'


def test_names_from_the_scenario_are_text_and_nothing_else(
    make_run: Callable[..., Path], tmp_path: Path
) -> None:
    """A strategy called <script> shows as text: in the page, in the embedded data, and in the figures."""
    folder = make_run(
        name=HOSTILE,
        strategies=[{"kind": "fdms", "name": "<script>"}, {"kind": "dropout", "name": HOSTILE[:50]}],
    )
    page = page_of(folder, tmp_path / "report.html")
    body = re.sub(r"<script>.*?</script>", "", page, flags=re.S)
    assert page.count("<script") == 3
    assert "<img" not in body
    assert "&lt;script&gt;" in body
    assert "alert(&quot;x&quot;)" in body
    names = [series["name"] for series in embedded(page)["figures"]["accuracy"]["payload"]["series"]]
    assert names == ["<script>", HOSTILE[:50]]


def test_only_the_pages_own_scripts_may_run(tiny: Path, tmp_path: Path) -> None:
    page = page_of(tiny, tmp_path / "report.html")
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    assert "default-src 'none'" in policy.group(1)
    assert policy.group(1).count("sha256-") == 2
    assert "unsafe-inline" not in policy.group(1).split("style-src")[0]


def test_an_unfinished_run_says_so(tiny: Path, tmp_path: Path) -> None:
    folder = copied(tiny, tmp_path)
    manifest = json.loads((folder / "run.json").read_text())
    manifest["status"] = "running"
    manifest["strategies"]["stale"] |= {"status": "running", "rounds_done": 0}
    (folder / "run.json").write_text(json.dumps(manifest))
    for table in ("rounds", "clients"):
        shutil.rmtree(folder / table / "strategy=stale")
    page = page_of(folder, tmp_path / "report.html")
    assert "Unfinished: this run was interrupted" in page
    assert "stale 0 of 6" in page
    assert len(embedded(page)["figures"]["accuracy"]["payload"]["series"]) == 3


def test_a_run_that_has_only_begun_says_what_is_missing(tiny: Path, tmp_path: Path) -> None:
    folder = copied(tiny, tmp_path)
    manifest = json.loads((folder / "run.json").read_text())
    manifest |= {"status": "running", "trace_hash": None}
    manifest["strategies"] = {
        label: {"status": "waiting", "rounds_done": 0} for label in manifest["strategies"]
    }
    (folder / "run.json").write_text(json.dumps(manifest))
    for gone in ("rounds", "clients", "similarity"):
        shutil.rmtree(folder / gone)
    (folder / "trace.parquet").unlink()
    page = page_of(folder, tmp_path / "report.html")
    assert "Unfinished" in page
    assert "Nothing has been evaluated yet." in page
    assert "There is no trace yet." in page
    assert embedded(page)["figures"] == {}


def test_one_strategy_without_events_clusters_or_counterfactual(
    make_run: Callable[..., Path], tmp_path: Path
) -> None:
    folder = make_run(
        data={"kind": "digits", "partition": {"kind": "iid", "samples_per_client": 20}},
        strategies=[{"kind": "dropout"}],
        telemetry={"similarity_every": 0},
    )
    page = page_of(folder, tmp_path / "report.html")
    figures = embedded(page)["figures"]
    assert "No event log was recorded" in page
    assert "No strategy of this run compared clients" in page
    assert "Not measured: set" in page
    assert "similarity" not in figures
    assert figures["outcomes"]["payload"]["cluster"] is None
    sorts = [option["value"] for option in figures["outcomes"]["payload"]["controls"][0]["options"]]
    assert sorts == ["completion", "device", "client"]
    assert [row["key"] for row in figures["device"]["payload"]["rows"]] == ["soc", "link"]


def test_a_trace_without_devices(make_run: Callable[..., Path], tmp_path: Path) -> None:
    folder = make_run(fleet=None, participation={"kind": "fixed_ratio", "alpha": 0.5, "clients": 8})
    page = page_of(folder, tmp_path / "report.html")
    assert "simulates no devices" in page
    assert "had no simulated devices" in page
    assert "scripted 100%" in page


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda folder: folder, "there is no such folder"),
        (lambda folder: (folder.mkdir(), folder)[1], "neither a run nor a study"),
        (lambda folder: (folder.mkdir(), (folder / "run.json").write_text("{"), folder)[2], "damaged"),
        (
            lambda folder: (folder.mkdir(), (folder / "study.json").write_text("[]"), folder)[2],
            "does not list a study's trials",
        ),
    ],
)
def test_a_folder_that_is_no_run_gives_one_clear_error(
    make: Callable[[Path], Path], problem: str, tmp_path: Path
) -> None:
    folder = make(tmp_path / "nothing")
    with pytest.raises(RunFolderError) as caught:
        write_report(folder)
    assert problem in str(caught.value)
    assert str(folder) in str(caught.value)
    assert not (folder / "report.html").exists()


def test_a_place_that_cannot_be_written_gives_one_clear_error(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FdsimError, match="cannot be written"):
        write_report(tiny, tmp_path / "file" / "report.html")


def test_the_command_says_where_the_page_is(tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    answer = CliRunner().invoke(assemble(), ["report", str(tiny), "--out", str(out)])
    assert answer.exit_code == 0
    assert str(out) in answer.output
    assert out.stat().st_size > 1e6
