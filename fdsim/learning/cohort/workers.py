"""Where chunks of clients are trained in parallel: CPU threads, or several GPUs.

A CPU worker is a thread that keeps torch to itself (one intra-op thread): torch's operators release the interpreter, so
two workers fill two cores without the barriers that splitting every small operator over both would cost. Since each
operator runs on one thread, results do not depend on how many threads torch is given.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import ParamSpec, Protocol, TypeVar

import torch

from fdsim.learning.local.batches import Batches
from fdsim.learning.local.sgd import SgdSettings

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


class LocalTrainer(Protocol):
    """Trains the clients of a chunk on one accelerator."""

    def train(
        self, start: torch.Tensor, batches: Batches, settings: SgdSettings
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return updates [C, P] and each client's mean loss [C]."""


class Worker:
    """A local trainer on its accelerator, with a thread of its own unless it works inline."""

    def __init__(self, trainer: LocalTrainer, accelerator: torch.device, *, inline: bool) -> None:
        self.trainer, self.accelerator = trainer, accelerator
        self.executor: Executor = (
            _InlineExecutor()
            if inline
            else ThreadPoolExecutor(1, thread_name_prefix="fdsim-worker", initializer=self._start)
        )

    def _start(self) -> None:
        if self.accelerator.type == "cpu":
            torch.set_num_threads(1)  # of this thread only


class _InlineExecutor(Executor):
    """Does the work in the calling thread, at once."""

    def submit(
        self, fn: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Future[Result]:
        done: Future[Result] = Future()
        done.set_result(fn(*args, **kwargs))
        return done
