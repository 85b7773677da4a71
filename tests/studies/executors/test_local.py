"""Studies on worker processes: the same tables whatever happens to the processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fdsim.errors import RunFolderError
from fdsim.studies.executors.local import LocalChoices, LocalExecutor
from fdsim.studies.folder import read_study
from fdsim.studies.launch import StudyChoices, run_study
from fdsim.studies.plan import Trial
from fdsim.studies.progress import SilentStudy

STUDY = '[study]\nbase = "base.toml"\nseeds = 2\n[study.grid]\n"training.learning_rate" = [0.05, 0.1]\n'
ROOT = Path(__file__).resolve().parents[3]

#: Strategies that fail, each in its own way; marks on disk make them fail once.
FRAGILE = '''
import atexit
import os
import signal
import sys
from pathlib import Path
from fdsim.strategies.dropout import Dropout

if "pytest" not in sys.modules:
    atexit.register(lambda: Path(__file__).with_name("left").touch())

class Fragile(Dropout):
    """Fails in a round, in one of several ways."""
    round_index: int = 3
    how: str = "raise"
    mark: str = ""

    def blend(self, state, cohort):
        if cohort.round_index == self.round_index and not (self.mark and Path(self.mark).exists()):
            if self.mark:
                Path(self.mark).touch()
            if self.how == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            raise ZeroDivisionError("a model of my own is wrong")
        return super().blend(state, cohort)
'''


def fragile(path: Path, **fields: Any) -> str:
    (path.parent / "fragile_models.py").write_text(FRAGILE)
    lines = "\n".join(f"{name} = {json.dumps(value)}" for name, value in fields.items())
    return f'\n[[strategies]]\nkind = "fragile_models:Fragile"\n{lines}\n'


@pytest.fixture(scope="module")
def by_one(tmp_path_factory: pytest.TempPathFactory, study_in: Any, tables_of: Any) -> Any:
    """The undisturbed study, one trial after another."""
    folder = tmp_path_factory.mktemp("by_one")
    run_study(study_in(folder, STUDY), folder / "out", StudyChoices(workers=1))
    return tables_of(folder / "out")


class Watcher(SilentStudy):
    """Keeps what was shown, and interferes when told to."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.failed: list[tuple[str, bool]] = []
        self.kill_first = False

    def trial_starts(self, trial: Trial, where: str) -> None:
        self.started.append(trial.id)
        self.where = where

    def trial_advances(self, trial: Trial, frac: float) -> None:
        if self.kill_first:
            self.kill_first = False
            os.kill(int(re.findall(r"process (\d+)", self.where)[0]), signal.SIGKILL)

    def trial_fails(self, trial: Trial, message: str, *, again: bool) -> None:
        self.failed.append((message, again))


def test_workers_change_nothing_and_finished_trials_are_not_repeated(
    write_study: Any, tmp_path: Path, tables_of: Any, same_tables: Any, by_one: Any
) -> None:
    """Two workers give what one gives; a second command runs nothing; a changed file runs what is new."""
    path, out = write_study(STUDY), tmp_path / "out"
    outcome = run_study(path, out, StudyChoices(workers=2))
    assert len(outcome.complete) == 4
    assert outcome.failed == ()
    same_tables(tables_of(out), by_one)
    assert len(list((out / "traces").glob("*.parquet"))) == 2
    about = read_study(out)
    assert about["status"] == "complete"
    assert all(trial["attempts"] == 1 and trial["wall_s"] > 0 for trial in about["trials"])

    again = Watcher()
    run_study(path, out, progress=again)
    assert again.started == []

    changed = Watcher()
    run_study(write_study(STUDY.replace("[0.05, 0.1]", "[0.2, 0.05]")), out, progress=changed)
    assert len(changed.started) == 2
    about = read_study(out)
    assert {trial["settings"]["training.learning_rate"] for trial in about["trials"]} == {0.2, 0.05}
    assert len(about["retired"]) == 2
    assert all((out / folder / "run.json").exists() for folder in about["retired"])


def test_a_killed_worker_loses_nothing(
    write_study: Any, tmp_path: Path, tables_of: Any, same_tables: Any, by_one: Any
) -> None:
    watcher = Watcher()
    watcher.kill_first = True
    outcome = run_study(write_study(STUDY), tmp_path / "out", StudyChoices(workers=1), progress=watcher)
    assert len(outcome.complete) == 4
    assert [again for _, again in watcher.failed] == [True]
    assert "killed by SIGKILL" in watcher.failed[0][0]
    same_tables(tables_of(tmp_path / "out"), by_one)


def test_a_trial_that_fails_once_goes_on_from_its_checkpoint(write_study: Any, tmp_path: Path) -> None:
    path = write_study('[study]\nbase = "base.toml"\n')
    path = write_study(
        '[study]\nbase = "base.toml"\n', more=fragile(path, how="die", mark=str(tmp_path / "mark"))
    )
    watcher = Watcher()
    outcome = run_study(path, tmp_path / "out", progress=watcher)
    assert len(outcome.complete) == 1
    assert len(watcher.failed) == 1
    manifest = json.loads(
        (outcome.folder / read_study(outcome.folder)["trials"][0]["folder"] / "run.json").read_text()
    )
    assert len(manifest["sessions"]) == 2
    # A worker ends quickly, but what the user's own code wants done at the exit is done.
    assert (path.parent / "left").exists()


def test_a_trial_that_keeps_failing_is_reported_and_stops_nobody(write_study: Any, tmp_path: Path) -> None:
    study = (
        '[study]\nbase = "base.toml"\nretries = 1\n[study.cases.good]\n'
        '[study.cases.bad]\n"strategies.2.round_index" = 1\n'
    )
    path = write_study(study)
    write_study(study, more=fragile(path, round_index=99))
    watcher = Watcher()
    outcome = run_study(path, tmp_path / "out", StudyChoices(workers=2), progress=watcher)
    assert [trial.case for trial in outcome.complete] == ["good"]
    assert [(trial.case, message) for trial, message in outcome.failed] == [
        ("bad", "ZeroDivisionError: a model of my own is wrong")
    ]
    assert [again for _, again in watcher.failed] == [True, False]
    about = read_study(tmp_path / "out")
    assert about["status"] == "failed"
    assert {trial["case"]: trial["status"] for trial in about["trials"]} == {
        "good": "complete",
        "bad": "failed",
    }
    assert "ZeroDivisionError" in "".join(path.read_text() for path in (tmp_path / "out" / "logs").iterdir())


def _start(path: Path, out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "fdsim", "study", str(path), "--out", str(out), "--workers", "2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)


def _complete(out: Path) -> dict[str, int]:
    found = {}
    for path in out.glob("trials/*/run.json"):
        manifest = json.loads(path.read_text())
        if manifest["status"] == "complete":
            found[str(path)] = path.stat().st_mtime_ns
    return found


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_driver_loses_nothing_and_repeats_nothing(
    write_study: Any, tmp_path: Path, tables_of: Any, same_tables: Any, number: signal.Signals
) -> None:
    """The driver ends with trials complete, running and waiting; the same command goes on."""
    study = STUDY.replace("seeds = 2", "seeds = 4")
    path, out = write_study(study, rounds=60), tmp_path / "out"
    run_study(path, tmp_path / "undisturbed", StudyChoices(workers=2))
    driver = _start(path, out)
    give_up_s = time.monotonic() + 600
    while not _complete(out) and driver.poll() is None and time.monotonic() < give_up_s:
        time.sleep(0.02)
    driver.send_signal(number)
    driver.communicate()
    before = _complete(out)
    assert 0 < len(before) < 8
    second = _start(path, out)
    told, _ = second.communicate(timeout=300)
    assert second.returncode == 0, told.decode()
    after = _complete(out)
    assert {path: after[path] for path in before} == before
    same_tables(tables_of(out), tables_of(tmp_path / "undisturbed"))


def test_workers_end_with_their_driver(write_study: Any, tmp_path: Path) -> None:
    """A driver that is killed with -9 leaves no process behind that goes on computing."""
    driver = _start(write_study(STUDY, rounds=2000), tmp_path / "out")
    give_up_s = time.monotonic() + 600
    pids: list[int] = []
    while not pids and time.monotonic() < give_up_s:
        time.sleep(0.1)
        if any((tmp_path / "out").glob("trials/*/run.json")):
            where = [str(trial.get("where", "")) for trial in read_study(tmp_path / "out")["trials"]]
            pids = [int(pid) for text in where for pid in re.findall(r"process (\d+)", text)]
    assert pids
    driver.kill()
    driver.communicate()
    while any(_alive(pid) for pid in pids) and time.monotonic() < give_up_s:
        time.sleep(0.1)
    assert not any(_alive(pid) for pid in pids)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def test_two_drivers_do_not_share_a_folder(write_study: Any, tmp_path: Path) -> None:
    from fdsim.studies.folder import StudyFolder
    from fdsim.studies.plan import plan_study
    from fdsim.studies.study_file import load_study

    plan = plan_study(load_study(write_study(STUDY)))
    with StudyFolder(tmp_path / "out", plan), pytest.raises(RunFolderError, match=f"process {os.getpid()}"):
        StudyFolder(tmp_path / "out", plan).__enter__()


@pytest.mark.parametrize("place", ["a file", "below a file", "strangers"])
def test_a_folder_that_cannot_hold_results_is_refused_before_anything_runs(
    write_study: Any, tmp_path: Path, place: str
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.tex").write_text("")
    out = {
        "a file": tmp_path / "file",
        "below a file": tmp_path / "file" / "x",
        "strangers": tmp_path / "folder",
    }[place]
    watcher = Watcher()
    with pytest.raises(RunFolderError, match="choose another with --out"):
        run_study(write_study(STUDY), out, progress=watcher)
    assert watcher.started == []


def _environment(pid: int) -> dict[str, str]:
    """Read a young process's environment, which is its parent's until it has become a program of its own."""
    give_up_s = time.monotonic() + 30
    found: dict[str, str] = {}
    while "CUDA_VISIBLE_DEVICES" not in found and time.monotonic() < give_up_s:
        text = Path(f"/proc/{pid}/environ").read_text()
        found = dict(line.split("=", 1) for line in text.split("\0") if "=" in line)
    return found


def test_gpus_are_handed_out_in_turn(tmp_path: Path) -> None:
    """Four workers on two GPUs, a quarter of one each at most: 0, 1, 0, 1."""
    executor = LocalExecutor(LocalChoices(gpus_per_run=0.5, gpus=("GPU-a", "GPU-b")), tmp_path)
    assert executor.slots == 4
    with executor:
        seen = []
        for slot in range(executor.slots):
            settings = _environment(executor._start(slot).process.pid)
            seen.append(settings["CUDA_VISIBLE_DEVICES"])
            assert settings["OMP_NUM_THREADS"] == "1"
    assert seen == ["GPU-a", "GPU-b", "GPU-a", "GPU-b"]
