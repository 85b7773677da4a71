"""A process that has its imports behind it and forks for every job, so that a kill costs no start of torch.

`python warm_server.py` reads jobs as lines of JSON and answers each with a line: {"what": "run", "folder": …} is done in
a child; "kill_after_s" kills it -9, "fault" = [n, errno, stays] lets its n-th call that changes the disk fail, where the
library of failing_disk.c is preloaded.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

SCENARIO = """
name = "tiny"
seed = 3
rounds = ROUNDS
net = { kind = "mlp", hidden = [4] }
data = { kind = "digits", partition = { kind = "iid", samples_per_client = 20 } }
training = { local_steps = 2, batch_size = 10, learning_rate = 0.1 }
server = { deadline_s = 120, round_interval_s = 1800 }
fleet = [{ profile = "midrange_phone", count = 5 }]
strategies = ["fdms", "dropout"]
acceleration = { device = "cpu" }
telemetry = { similarity_every = 2, checkpoint_every = CHECKPOINTS, flush_every_s = 1e-9, events = EVENTS }
"""
STUDY = """
[study]
seeds = [1, 2]
retries = 0
[study.grid]
"training.learning_rate" = [0.05, 0.1]
"""


def scenario_text(checkpoints: int | str = 2, *, events: bool = True, rounds: int = 5) -> str:
    """Return the tiny scenario; `checkpoints` is a number of rounds or "auto", which is never in so short a run."""
    text = SCENARIO.replace("CHECKPOINTS", json.dumps(checkpoints)).replace("ROUNDS", str(rounds))
    return text.replace("EVENTS", json.dumps(events))


def run(folder: str, checkpoints: int | str = 2, *, events: bool = True, rounds: int = 5) -> None:
    """Run the tiny scenario, or what is left of it."""
    from fdsim.pipeline import RunChoices, run_scenario
    from fdsim.scenario import load_scenario

    scenario = load_scenario(scenario_text(checkpoints, events=events, rounds=rounds))
    run_scenario(scenario, Path(folder), RunChoices(resume=True))


def study(folder: str, checkpoints: int | str = 2) -> None:
    """Run a study of four trials, or what is left of it, in processes of their own."""
    from fdsim.studies.launch import StudyChoices, run_study

    path = Path(folder).with_suffix(".study.toml")
    if not path.exists():
        path.write_text(scenario_text(checkpoints, events=False) + STUDY)
    run_study(path, Path(folder), StudyChoices(workers=2))


def report(folder: str) -> None:
    """Write the report of a run."""
    from fdsim.report import write_report

    write_report(folder)


JOBS: dict[str, Callable[..., None]] = {"run": run, "study": study, "report": report}


def _in_child(job: dict[str, Any], answers: int) -> None:
    """Do a job and end the process: 0, the exit code of an error of ours, or 70 for any other."""
    from fdsim.errors import FdsimError

    code, said = 0, ""
    try:
        JOBS[job["what"]](job["folder"], **job.get("options", {}))
    except FdsimError as error:
        code, said = error.exit_code, str(error)
    except BaseException:
        code, said = 70, traceback.format_exc()
    os.write(answers, said.encode()[-4000:])
    os._exit(code)


def _do(job: dict[str, Any], disk: Any) -> dict[str, Any]:
    reading, writing = os.pipe()
    if disk is not None:
        number, error, stays = job.get("fault") or (0, 0, 0)
        disk.fault_arm(os.path.abspath(job["folder"]).encode(), number, error, stays)
    began_s = time.monotonic()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        _in_child(job, writing)
    os.close(writing)
    if job.get("kill_after_s") is not None:
        time.sleep(job["kill_after_s"])
        with suppress(ProcessLookupError):
            # The whole group, workers of a study included, goes as when a machine loses power.
            (os.killpg if job.get("group") else os.kill)(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    said = b""
    while block := os.read(reading, 4096):
        said += block
    os.close(reading)
    code = os.waitstatus_to_exitcode(status)
    return {
        "code": code,
        "killed": code == -signal.SIGKILL,
        "said": said.decode("utf-8", "replace"),
        "wall_s": time.monotonic() - began_s,
        "calls": disk.fault_count() if disk is not None else 0,
        "failed": disk.fault_last().decode() if disk is not None else "",
    }


class Server:
    """The other side: starts the process, hands it jobs; `library` is preloaded under it."""

    def __init__(self, library: Path | None = None) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        if library is not None:
            environment["LD_PRELOAD"] = str(library)
        self._process = subprocess.Popen(
            [sys.executable, __file__, *([str(library)] if library else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )

    def do(self, what: str, folder: Path, **job: Any) -> dict[str, Any]:
        """Do a job and return how it ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps({"what": what, "folder": str(folder), **job}), file=self._process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        """End the process."""
        # Leaving closes the pipes, which ends the process, and waits for it.
        with self._process:
            pass


def serve() -> None:
    """Import what jobs need, then do them one by one."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    disk = None
    if len(sys.argv) > 1:
        disk = ctypes.CDLL(sys.argv[1])
        disk.fault_count.restype = ctypes.c_long
        disk.fault_last.restype = ctypes.c_char_p
        disk.fault_arm.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int, ctypes.c_int]
    import torch

    from fdsim.prepare import make_task, prepare
    from fdsim.scenario import load_scenario

    torch.set_num_threads(1)
    # What is imported at first use, and the data set, are at hand before the first fork.
    make_task(prepare(load_scenario(scenario_text())))
    for line in sys.stdin:
        print(json.dumps(_do(json.loads(line), disk)), file=answers, flush=True)


if __name__ == "__main__":
    serve()
