"""One writer per run folder; the dead hold no locks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fdsim.errors import RunFolderError
from fdsim.telemetry.lock import LOCK_NAME, RunLock, writer_of

HOLD = """
import sys, time
from pathlib import Path
from fdsim.telemetry.lock import RunLock
RunLock(Path(sys.argv[1])).take()
print("held", flush=True)
time.sleep(60)
"""


def holder(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_the_second_process_is_refused_with_the_pid_of_the_first_until_that_dies(tmp_path: Path) -> None:
    with holder(tmp_path) as first:
        with pytest.raises(RunFolderError, match=f"process {first.pid} on .* is writing this run"):
            RunLock(tmp_path).take()
        assert writer_of(tmp_path) == first.pid
        first.kill()
    assert writer_of(tmp_path) is None
    lock = RunLock(tmp_path)
    lock.take()
    assert writer_of(tmp_path) == os.getpid()
    lock.release()


def test_a_lock_left_by_a_dead_process_is_taken_over(tmp_path: Path) -> None:
    # The pid is that of a living process, as after a restart of the machine: the text alone locks nothing.
    (tmp_path / LOCK_NAME).write_text(json.dumps({"pid": os.getppid(), "host": "elsewhere"}))
    assert writer_of(tmp_path) is None
    lock = RunLock(tmp_path)
    lock.take()
    assert json.loads((tmp_path / LOCK_NAME).read_text())["pid"] == os.getpid()
    lock.release()


def test_a_second_lock_in_the_same_process_is_refused_too(tmp_path: Path) -> None:
    lock = RunLock(tmp_path)
    lock.take()
    with pytest.raises(RunFolderError, match=f"process {os.getpid()}"):
        RunLock(tmp_path).take()
    lock.release()
    lock.release()
    RunLock(tmp_path).take()


def test_a_folder_without_a_lock_has_no_writer(tmp_path: Path) -> None:
    assert writer_of(tmp_path) is None
    assert writer_of(tmp_path / "nowhere") is None
