"""Where chunks of clients are trained side by side: CPU threads, or several GPUs.

A CPU worker is a thread that keeps torch to itself (one intra-op thread): torch's operators release the interpreter, so
two workers fill two cores without the barriers that splitting every small operator over both would cost. Since each
operator runs on one thread, results do not depend on how many threads torch is given.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

import torch

from fdsim.learning.local.batches import Batches
from fdsim.learning.local.sgd import SgdSettings

Result = TypeVar("Result")


class Path(Protocol):
    """A way to train a chunk of clients."""

    def train(
        self, start: torch.Tensor, batches: Batches, sgd: SgdSettings
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return updates [C, P] and each client's mean loss [C]."""


class Worker:
    """One path on one accelerator, with a thread of its own unless it works inline."""

    def __init__(self, path: Path, accelerator: torch.device, *, inline: bool) -> None:
        self.path, self.accelerator = path, accelerator
        self._inline = inline
        self._thread: ThreadPoolExecutor | None = None

    def submit(self, work: Callable[[Worker], Result]) -> Future[Result]:
        """Start a piece of work, or does it at once when inline."""
        if self._inline:
            done: Future[Result] = Future()
            done.set_result(work(self))
            return done
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="fdsim-worker", initializer=self._settle)
        return self._thread.submit(work, self)

    def _settle(self) -> None:
        if self.accelerator.type == "cpu":
            torch.set_num_threads(1)  # of this thread only


def on_workers(workers: list[Worker], jobs: Iterable[Callable[[Worker], Result]]) -> Iterator[Result]:
    """Yield the jobs' results in their order; at most one job for each worker is under way or waiting to be taken."""
    pending: deque[Future[Result]] = deque()
    for number, job in enumerate(jobs):
        if len(pending) == len(workers):
            yield pending.popleft().result()
        pending.append(workers[number % len(workers)].submit(job))
    while pending:
        yield pending.popleft().result()
