"""Worker processes as the local executor sees them: started one by one, or forked by a nursery where there is one."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Protocol

_GRACE_S = 5.0
_LONGEST_MESSAGE = 4096
#: The exit code of a worker whose nursery did not live to tell it.
UNKNOWN_CODE = 255


class WorkerProcess(Protocol):
    """What a `subprocess.Popen` and a forked worker have in common."""

    pid: int
    stdin: IO[bytes] | None
    stdout: IO[bytes] | None

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code, negative for a signal; raise a TimeoutExpired if it takes longer."""

    def kill(self) -> None:
        """Kill the process."""


def can_fork() -> bool:
    """Whether workers can be forked on this system, and be watched without being children."""
    return sys.platform == "linux" and hasattr(os, "pidfd_open") and hasattr(socket, "recv_fds")


class Nursery:
    """The driver's side of a process that forks workers, see `nursery`."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel, self._codes = ours, dict[int, int]()
        with theirs, open(log, "ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "fdsim.studies.executors.nursery"],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=environment,
            )

    def fork(self, log: Path) -> ForkedWorker | None:
        """Return a new worker, as soon as torch is imported; None if there is no nursery any more."""
        with ExitStack() as theirs, ExitStack() as ours:
            jobs, stdin = _pipe(theirs, ours)
            stdout, answers = _pipe(ours, theirs)
            errors = theirs.enter_context(open(log, "ab"))
            try:
                files = [jobs.fileno(), answers.fileno(), errors.fileno()]
                socket.send_fds(self._channel, [b"fork"], files)
                pid = self._hear_of(None)
            except OSError:
                pid = None
            if pid is None:
                return None
            ours.pop_all()
        return ForkedWorker(self, pid, stdin, stdout)

    def code_of(self, pid: int) -> int:
        """Return the exit code of a worker that has ended."""
        while pid not in self._codes and self._hear_of(pid) is not None:
            pass
        return self._codes.pop(pid, UNKNOWN_CODE)

    def _hear_of(self, wanted: int | None) -> int | None:
        """Return the next new worker's id, or `wanted` once its end is known; None if there is no nursery any more."""
        while True:
            try:
                message = self._channel.recv(_LONGEST_MESSAGE)
            except ConnectionError:
                return None
            if not message:
                return None
            about = json.loads(message)
            if "code" in about:
                self._codes[about["pid"]] = about["code"]
                if about["pid"] == wanted:
                    return wanted
            elif wanted is None:
                return int(about["pid"])

    def close(self) -> None:
        """End the process; workers end by themselves."""
        self._channel.close()
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _pipe(reads: ExitStack, writes: ExitStack) -> tuple[IO[bytes], IO[bytes]]:
    """Return both ends of a pipe, each to be closed with those of its side."""
    reading, writing = os.pipe()
    return (
        reads.enter_context(os.fdopen(reading, "rb")),
        writes.enter_context(os.fdopen(writing, "wb")),
    )


class ForkedWorker:
    """A worker that is a child of a nursery."""

    def __init__(self, nursery: Nursery, pid: int, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self.pid = pid
        self.stdin: IO[bytes] | None = stdin
        self.stdout: IO[bytes] | None = stdout
        self._nursery = nursery
        self._code: int | None = None
        try:
            # Names this very process, also when another one has got its number.
            self._handle: int | None = os.pidfd_open(pid)
        except ProcessLookupError:
            self._handle = None

    def wait(self, timeout: float | None = None) -> int:
        if self._code is None:
            if self._handle is not None:
                end = select.poll()
                end.register(self._handle, select.POLLIN)
                if not end.poll(None if timeout is None else timeout * 1e3):
                    raise subprocess.TimeoutExpired("worker", timeout or 0.0)
                os.close(self._handle)
                self._handle = None
            self._code = self._nursery.code_of(self.pid)
        return self._code

    def kill(self) -> None:
        if self._handle is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
