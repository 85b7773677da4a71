"""The local executor: worker processes on this machine, each with its own cores and, in turn, a GPU."""

from __future__ import annotations

import dataclasses
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from fdsim.distributed.cluster import usable_cores, worker_environment
from fdsim.errors import InputError
from fdsim.studies.executors.base import Advanced, Ended, Event, Failed, Started
from fdsim.studies.executors.forked import Nursery, WorkerProcess, can_fork
from fdsim.studies.trial import TrialJob

_GRACE_S = 5.0
_LOG_LINES_SHOWN = 3


@dataclass
class _Worker:
    """A process, its current trial, and what was received of its messages."""

    slot: int
    process: WorkerProcess
    log: Path
    trial: str | None = None
    received: bytes = field(default=b"")


@dataclass(frozen=True)
class LocalChoices:
    """How many workers, and the resources of each."""

    workers: int | None = None
    """As many as fit on the cores, or GPUs, if not given."""
    threads_per_run: int = 1
    gpus_per_run: float | None = None
    gpus: tuple[str, ...] = ()
    """What CUDA_VISIBLE_DEVICES may name, see `visible_gpus`."""


class LocalExecutor:
    """Keeps worker processes alive from trial to trial, and replaces one that died or in which a trial failed."""

    def __init__(self, choices: LocalChoices, logs: Path) -> None:
        self._choices, self._logs = choices, logs
        self._slots = choices.workers or _room(choices)
        if self._slots < 1:
            raise InputError("workers", f"{self._slots} workers cannot run anything", "give at least 1")
        self._workers: dict[int, _Worker] = {}
        self._nursery: Nursery | None = None
        # One worker needs no other to share its imports with. More threads than one a trial are started by the import;
        # what CUDA makes of a fork is not ours to find out.
        self._forks = can_fork() and self._slots > 1 and choices.threads_per_run == 1 and not choices.gpus
        self._selector = selectors.DefaultSelector()
        self._happened: list[Event] = []

    @property
    def slots(self) -> int:
        """The number of worker processes."""
        return self._slots

    def submit(self, job: TrialJob) -> None:
        """Give a trial to an idle worker, starting one if there is none."""
        idle = next((w for w in self._workers.values() if w.trial is None), None)
        worker = idle or self._start(min(set(range(self._slots)) - set(self._workers)))
        worker.trial = job.trial
        line = json.dumps(dataclasses.asdict(job)) + "\n"
        self._happened.append(Started(job.trial, f"worker {worker.slot}, process {worker.process.pid}"))
        try:
            if worker.process.stdin is not None:
                worker.process.stdin.write(line.encode())
                worker.process.stdin.flush()
        except BrokenPipeError:
            # It died while idle; `wait` notices, and the trial goes to another.
            return

    def wait(self, timeout_s: float) -> Sequence[Event]:
        """Collect the workers' messages, and notice those that died."""
        ready = self._selector.select(0 if self._happened else timeout_s)
        for key, _ in ready:
            worker: _Worker = key.data
            data = os.read(key.fd, 1 << 16)
            if data:
                worker.received += data
                *lines, worker.received = worker.received.split(b"\n")
                for line in lines:
                    self._heard(worker, json.loads(line))
            else:
                self._bury(worker)
        happened, self._happened = self._happened, []
        return happened

    def _heard(self, worker: _Worker, message: dict[str, Any]) -> None:
        if "frac" in message:
            self._happened.append(Advanced(message["trial"], message["frac"]))
            return
        worker.trial = None
        if "error" in message:
            self._happened.append(Failed(message["trial"], message["error"], again=message["again"]))
            # A retry gets a fresh process.
            self._stop([worker])
        else:
            self._happened.append(Ended(message["trial"], message["wall_s"], message["peak_mb"]))

    def _bury(self, worker: _Worker) -> None:
        code = worker.process.wait()
        if worker.trial is not None:
            how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            last = _last_lines(worker.log)
            self._happened.append(
                Failed(worker.trial, f"its worker process ended ({how})" + (f": {last}" if last else ""))
            )
            worker.trial = None
        self._forget(worker)

    def _forget(self, worker: _Worker) -> None:
        if self._workers.get(worker.slot) is worker:
            del self._workers[worker.slot]
            for pipe in (worker.process.stdout, worker.process.stdin):
                if pipe is not None and pipe is worker.process.stdout:
                    self._selector.unregister(pipe)
                _close(pipe)

    def _start(self, slot: int) -> _Worker:
        self._logs.mkdir(parents=True, exist_ok=True)
        log = self._logs / f"worker-{slot}.log"
        environment = worker_environment(threads=self._choices.threads_per_run)
        if self._choices.gpus:
            environment["CUDA_VISIBLE_DEVICES"] = self._choices.gpus[slot % len(self._choices.gpus)]
        process = self._forked(environment, log)
        if process is None:
            with open(log, "ab") as errors:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "fdsim.studies.executors.worker"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    env=environment,
                )
        worker = self._workers[slot] = _Worker(slot, process, log)
        if process.stdout is not None:
            self._selector.register(process.stdout, selectors.EVENT_READ, worker)
        return worker

    def _forked(self, environment: dict[str, str], log: Path) -> WorkerProcess | None:
        """Fork a worker; None where that cannot be, now or any more."""
        if not self._forks:
            return None
        if self._nursery is None:
            self._nursery = Nursery(environment, log)
        found = self._nursery.fork(log)
        self._forks = found is not None
        return found

    def _stop(self, workers: list[_Worker]) -> None:
        """Close the workers' input, which ends them; those that do not react are killed."""
        for worker in workers:
            self._forget(worker)
        give_up_s = time.monotonic() + _GRACE_S
        for worker in workers:
            try:
                worker.process.wait(max(0.0, give_up_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()

    def __enter__(self) -> LocalExecutor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop(list(self._workers.values()))
        self._selector.close()
        if self._nursery is not None:
            self._nursery.close()


def _room(choices: LocalChoices) -> int:
    if choices.gpus:
        return max(1, int(len(choices.gpus) / (choices.gpus_per_run or 1.0)))
    return max(1, usable_cores() // choices.threads_per_run)


def visible_gpus() -> tuple[str, ...]:
    """Return the GPUs this process may use, without loading torch."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return tuple(name.strip() for name in named.split(",") if name.strip() and name.strip() != "-1")
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    found = subprocess.run(
        [program, "--query-gpu=uuid", "--format=csv,noheader"], capture_output=True, text=True, check=False
    )
    return (
        tuple(line.strip() for line in found.stdout.splitlines() if line.strip())
        if found.returncode == 0
        else ()
    )


def _last_lines(log: Path) -> str:
    with open(log, "rb") as file:
        file.seek(max(0, log.stat().st_size - 2000))
        lines = file.read().decode("utf-8", "replace").splitlines()
    return " | ".join(line.strip() for line in lines[-_LOG_LINES_SHOWN:] if line.strip())


def _close(pipe: Any) -> None:
    try:
        if pipe is not None:
            pipe.close()
    except BrokenPipeError:
        return
