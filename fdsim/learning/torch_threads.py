"""How many threads of a CPU torch's operators use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch's operators use so many threads, for a while.

    Beside workers that train on all cores it should be one: an operator that is divided waits, at full speed, for
    the part whose core is taken, and takes the time from the worker.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
