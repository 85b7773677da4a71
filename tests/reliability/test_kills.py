"""kill -9 at random moments of runs, studies and reports: nothing is lost, and going on gives the undisturbed tables."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from warm_server import STUDY, Server, scenario_text
from whole_runs import ROOT, readable, same_run

import fdsim
from fdsim.rng import stream
from fdsim.telemetry.manifest import find_run_folders

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no kill -9")

SEED = 15


def killed_runs(kills: int, folder: Path, server: Server, *options: dict[str, Any]) -> int:
    """Kill runs at random moments and resume them, whole again and again; return how many runs that took."""
    rng, done, number = stream(SEED, "kills", kills), 0, 0
    while done < kills:
        chosen = options[number % len(options)]
        reference = folder / f"reference-{number % len(options)}"
        if not reference.exists():
            assert server.do("run", reference, options=chosen)["code"] == 0
        # A second one, as the first waits for what is imported at first use.
        whole_s = server.do("run", folder / f"timed-{number}", options=chosen)["wall_s"]
        run = folder / f"run-{number}"
        while True:
            told = server.do("run", run, options=chosen, kill_after_s=float(rng.uniform(0, whole_s)))
            assert told["code"] in (0, -signal.SIGKILL), told["said"]
            if run.exists():
                readable(run)
            if told["code"] == 0:
                break
            done += 1
            if done >= kills:
                assert server.do("run", run, options=chosen)["code"] == 0
                break
        same_run(run, reference)
        number += 1
    return number


@pytest.mark.reliability
def test_kills_of_runs(server: Server, tmp_path: Path) -> None:
    runs = killed_runs(140, tmp_path, server, {"checkpoints": 2}, {"checkpoints": 1}, {"checkpoints": "auto"})
    print(
        f"\nkills of runs, seed {SEED}: 140 in {runs} runs, checkpoints due every 1 or 2 rounds or never: all equal"
    )


def _same_study(one: Path, other: Path) -> None:
    mine, theirs = ({path.name: path for path in find_run_folders(folder)} for folder in (one, other))
    assert set(mine) == set(theirs)
    assert len(mine) == 4
    for name, path in mine.items():
        same_run(path, theirs[name])
    assert set(fdsim.open_study(one).manifest["status"]) == {"complete"}


@pytest.mark.reliability
def test_kills_of_studies(server: Server, tmp_path: Path) -> None:
    assert server.do("study", tmp_path / "reference")["code"] == 0
    rng, kills, studies = stream(SEED, "kills of studies"), 0, 0
    whole_s = server.do("study", tmp_path / "timed")["wall_s"]
    while kills < 40:
        folder = tmp_path / f"study-{studies}"
        while True:
            told = server.do(
                "study", folder, kill_after_s=float(rng.uniform(0, whole_s)), group=bool(rng.random() < 0.5)
            )
            assert told["code"] in (0, -signal.SIGKILL), told["said"]
            for run in find_run_folders(folder):
                readable(run)
            if told["code"] == 0:
                break
            kills += 1
            if kills >= 40:
                assert server.do("study", folder)["code"] == 0
                break
        _same_study(folder, tmp_path / "reference")
        studies += 1
    print(f"\nkills of studies, seed {SEED}: {kills} in {studies} studies of 4 trials: all equal")


@pytest.mark.reliability
def test_kills_of_reports(server: Server, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert server.do("run", run)["code"] == 0
    assert server.do("run", tmp_path / "reference")["code"] == 0
    whole_s = server.do("report", run)["wall_s"]
    rng, kills, page = stream(SEED, "kills of reports"), 0, run / "report.html"
    while kills < 25:
        if rng.random() < 0.5:
            page.unlink(missing_ok=True)
        told = server.do("report", run, kill_after_s=float(rng.uniform(0, whole_s)))
        assert told["code"] in (0, -signal.SIGKILL), told["said"]
        kills += told["killed"]
        assert not page.exists() or page.read_text().rstrip().endswith("</html>")
        same_run(run, tmp_path / "reference")
    assert server.do("report", run)["code"] == 0
    assert page.read_text().rstrip().endswith("</html>")
    print(f"\nkills of reports, seed {SEED}: {kills}: the page whole or absent, the run untouched")


@pytest.mark.reliability
@pytest.mark.parametrize("verb", ["run", "study"])
def test_kills_of_the_command_itself(verb: str, server: Server, tmp_path: Path) -> None:
    """Real processes, from the first import on."""
    study = verb == "study"
    text = scenario_text(1, events=not study) + (STUDY if study else "")
    (tmp_path / "given.toml").write_text(text)
    assert server.do(verb, tmp_path / "reference", options={"checkpoints": 1})["code"] == 0
    command = [
        sys.executable,
        "-m",
        "fdsim",
        verb,
        str(tmp_path / "given.toml"),
        "--out",
        str(tmp_path / "out"),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}

    def start(*more: str) -> Any:
        return subprocess.Popen([*command, *more], env=environment, cwd=tmp_path, stdout=subprocess.DEVNULL)

    began_s = time.monotonic()
    process = start()
    assert process.wait() == 0
    whole_s = time.monotonic() - began_s
    rng, kills = stream(SEED, "kills of commands", verb), 0
    check: Callable[[Path, Path], None] = _same_study if study else same_run
    command[-1] = str(tmp_path / "killed")
    while kills < 5:
        process = start(*([] if study else ["--resume"]))
        time.sleep(float(rng.uniform(0.3, 1.0)) * whole_s)
        process.kill()
        if process.wait() == 0:
            # It was quicker than the first: another one is killed.
            check(tmp_path / "killed", tmp_path / "out")
            shutil.rmtree(tmp_path / "killed")
            continue
        kills += 1
        for run in find_run_folders(tmp_path / "killed"):
            readable(run)
    assert start(*([] if study else ["--resume"])).wait() == 0
    check(tmp_path / "killed", tmp_path / "out")
    print(f"\nkills of the command fdsim {verb}, seed {SEED}: {kills}: equal")
