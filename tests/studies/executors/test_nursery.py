"""Workers forked by a process that has imported torch: what is killed is noticed, and nobody is left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fdsim.distributed.cluster import worker_environment
from fdsim.studies.executors.forked import UNKNOWN_CODE, ForkedWorker, Nursery, can_fork
from fdsim.studies.executors.local import LocalChoices, LocalExecutor
from fdsim.studies.folder import read_study
from fdsim.studies.launch import StudyChoices, run_study
from fdsim.studies.plan import Trial
from fdsim.studies.progress import SilentStudy

pytestmark = pytest.mark.skipif(not can_fork(), reason="workers are forked on Linux only")

STUDY = '[study]\nbase = "base.toml"\nseeds = 2\n[study.grid]\n"training.learning_rate" = [0.05, 0.1]\n'
ROOT = Path(__file__).resolve().parents[3]


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ends(pid: int) -> bool:
    give_up_s = time.monotonic() + 60
    while alive(pid) and time.monotonic() < give_up_s:
        time.sleep(0.05)
    return not alive(pid)


class Killer(SilentStudy):
    """Kills the first worker, or the process that it was forked from, when a trial has come some way."""

    def __init__(self, whom: str) -> None:
        self.whom, self.failures = whom, list[str]()
        self.worker = self.nursery = 0

    def trial_starts(self, trial: Trial, where: str) -> None:
        if not self.worker:
            self.worker = int(re.findall(r"process (\d+)", where)[0])
            self.nursery = parent_of(self.worker)

    def trial_advances(self, trial: Trial, frac: float) -> None:
        if self.whom:
            os.kill(self.worker if self.whom == "worker" else self.nursery, signal.SIGKILL)
            self.whom = ""

    def trial_fails(self, trial: Trial, message: str, *, again: bool) -> None:
        self.failures.append(message)


@pytest.mark.parametrize("whom", ["worker", "nursery", ""])
def test_a_kill_loses_nothing(
    write_study: Any, tmp_path: Path, tables_of: Any, same_tables: Any, whom: str
) -> None:
    """Workers outlive their nursery, and whoever is needed after it is started without one."""
    path, watcher = write_study(STUDY, rounds=60), Killer(whom)
    outcome = run_study(path, tmp_path / "out", StudyChoices(workers=2), progress=watcher)
    assert len(outcome.complete) == 4
    assert watcher.whom == ""
    assert watcher.nursery != os.getpid()
    if whom == "worker":
        assert len(watcher.failures) == 1
        assert "killed by SIGKILL" in watcher.failures[0]
    else:
        assert watcher.failures == []
    assert ends(watcher.worker)
    assert ends(watcher.nursery)
    run_study(path, tmp_path / "alone", StudyChoices(workers=1))
    same_tables(tables_of(tmp_path / "out"), tables_of(tmp_path / "alone"))


def test_a_nursery_ends_with_its_driver(write_study: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "fdsim", "study", str(write_study(STUDY, rounds=2000))]
    driver = subprocess.Popen(
        [*command, "--out", str(out), "--workers", "2"],
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    give_up_s = time.monotonic() + 60
    pids: list[int] = []
    while len(pids) < 2 and time.monotonic() < give_up_s:
        time.sleep(0.1)
        if (out / "study.json").exists():
            trials = read_study(out)["trials"]
            pids = [int(p) for t in trials for p in re.findall(r"process (\d+)", str(t.get("where", "")))]
    nursery = parent_of(pids[0])
    assert parent_of(pids[1]) == nursery
    assert parent_of(nursery) == driver.pid
    driver.kill()
    driver.communicate()
    assert ends(nursery)
    assert all(map(ends, pids))


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    made = Nursery(worker_environment(threads=1), tmp_path / "log")
    yield made
    made.close()


def forked(nursery: Nursery, log: Path) -> ForkedWorker:
    worker = nursery.fork(log)
    assert worker is not None
    return worker


def close(worker: ForkedWorker) -> None:
    for file in (worker.stdin, worker.stdout):
        if file is not None:
            file.close()


def test_a_worker_is_waited_for_like_any_process(nursery: Nursery, tmp_path: Path) -> None:
    first, second = (forked(nursery, tmp_path / "log") for _ in range(2))
    with pytest.raises(subprocess.TimeoutExpired):
        first.wait(0.05)
    second.kill()
    assert second.wait() == -signal.SIGKILL
    second.kill()
    assert second.wait(1.0) == -signal.SIGKILL
    close(second)
    # The end of its input ends it; the other's is of no consequence.
    close(first)
    assert first.wait(10.0) == 0


def test_a_worker_without_a_nursery_ends_for_reasons_unknown(tmp_path: Path) -> None:
    nursery = Nursery(worker_environment(threads=1), tmp_path / "log")
    worker = forked(nursery, tmp_path / "log")
    os.kill(parent_of(worker.pid), signal.SIGKILL)
    worker.kill()
    assert worker.wait() in (UNKNOWN_CODE, -signal.SIGKILL)
    assert nursery.fork(tmp_path / "log") is None
    close(worker)
    nursery.close()


def test_a_process_with_threads_forks_nobody(tmp_path: Path) -> None:
    """A lock that another thread holds would be held in the worker for ever."""
    code = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    (tmp_path / "sitecustomize.py").write_text(code)
    environment = worker_environment(threads=1)
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), environment["PYTHONPATH"]])
    nursery = Nursery(environment, tmp_path / "log")
    assert nursery.fork(tmp_path / "log") is None
    nursery.close()


@pytest.mark.parametrize(
    ("choices", "forks"),
    [
        (LocalChoices(workers=2), True),
        (LocalChoices(workers=1), False),
        (LocalChoices(workers=2, threads_per_run=2), False),
        (LocalChoices(workers=2, gpus=("0",)), False),
    ],
)
def test_who_is_forked(choices: LocalChoices, forks: bool, tmp_path: Path) -> None:
    with LocalExecutor(choices, tmp_path) as executor:
        assert executor._forks is forks
