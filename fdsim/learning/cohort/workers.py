"""Where chunks of clients are trained side by side: CPU threads, or several GPUs.

A CPU lane is a thread that keeps torch to itself (one intra-op thread): torch's operators release the interpreter, so
two lanes fill two cores without the barriers that splitting every small operator over both would cost. Since each
operator runs on one thread, results do not depend on how many threads torch is given.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

import torch

from fdsim.learning.local.batches import Batches
from fdsim.learning.local.sgd import Recipe

Result = TypeVar("Result")


class Path(Protocol):
    """A way to train a chunk of clients."""

    def train(
        self, start: torch.Tensor, batches: Batches, recipe: Recipe
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Answers with updates [C, P] and each client's mean loss [C]."""


class Lane:
    """One path on one accelerator, with a thread of its own unless it works inline."""

    def __init__(self, path: Path, accelerator: torch.device, *, inline: bool) -> None:
        self.path, self.accelerator = path, accelerator
        self._inline = inline
        self._thread: ThreadPoolExecutor | None = None

    def submit(self, work: Callable[[Lane], Result]) -> Future[Result]:
        """Starts a piece of work, or does it at once when inline."""
        if self._inline:
            done: Future[Result] = Future()
            done.set_result(work(self))
            return done
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="fdsim-lane", initializer=self._settle)
        return self._thread.submit(work, self)

    def _settle(self) -> None:
        if self.accelerator.type == "cpu":
            torch.set_num_threads(1)  # of this thread only


def in_lanes(lanes: list[Lane], jobs: Iterable[Callable[[Lane], Result]]) -> Iterator[Result]:
    """Yields the jobs' results in their order; at most one job for each lane is under way or waiting to be taken."""
    pending: deque[Future[Result]] = deque()
    for number, job in enumerate(jobs):
        if len(pending) == len(lanes):
            yield pending.popleft().result()
        pending.append(lanes[number % len(lanes)].submit(job))
    while pending:
        yield pending.popleft().result()
