"""Chunks of clients that are dealt out to all workers, where each client is trained alone.

A stack is small, since its clients are trained at once. Where the kernel trains one client after the other nothing
limits a chunk but memory, and what is done with a chunk afterwards costs less a client the more there are in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future

import numpy as np
import torch

from fdsim.learning.cohort.workers import Worker
from fdsim.learning.trainer import Chunk

#: The most bytes of updates in a chunk, of which up to three are about: trained, waiting and taken.
_CHUNK_BYTES = 2**24

#: With fewer clients for each worker a chunk saves nothing, and workers wait for each other.
_LEAST_EACH = 4

#: Trains the clients of a part of a chunk, which take so many steps each, in a worker, and puts the results there.
TrainPart = Callable[[Worker, Chunk, np.ndarray], None]


def worth_dealing(workers: Sequence[Worker], start: torch.Tensor) -> bool:
    """Whether a chunk has room for several clients of each worker."""
    return _chunk_size(start) >= _LEAST_EACH * len(workers)


def train_dealt(
    workers: Sequence[Worker],
    start: torch.Tensor,
    clients: np.ndarray,
    steps: np.ndarray,
    train_part: TrainPart,
) -> Iterator[Chunk]:
    """Yield the results of clients that are in order of their steps, so that all workers get about as many."""
    size = max(1, _chunk_size(start))
    pending: deque[tuple[Chunk, list[Future[None]]]] = deque()
    for first in range(0, len(clients), size):
        some = np.arange(first, min(first + size, len(clients)))
        hands = [some[number :: len(workers)] for number in range(min(len(workers), len(some)))]
        chunk = _blank(start, clients[np.concatenate(hands)], last=first + size >= len(clients))
        parts, begin = [], 0
        for worker, hand in zip(workers, hands, strict=False):
            part = chunk.rows(begin, begin + len(hand))
            parts.append(worker.executor.submit(train_part, worker, part, steps[hand]))
            begin += len(hand)
        pending.append((chunk, parts))
        # The workers have a chunk to go on with while the one before it is taken.
        if len(pending) > 1:
            yield _finished(*pending.popleft())
    while pending:
        yield _finished(*pending.popleft())


def _chunk_size(start: torch.Tensor) -> int:
    return _CHUNK_BYTES // (start.numel() * start.element_size())


def _blank(start: torch.Tensor, clients: np.ndarray, *, last: bool) -> Chunk:
    updates = start.new_empty(len(clients), start.numel())
    return Chunk(clients, updates, start.new_empty(len(clients)), last=last)


def _finished(chunk: Chunk, parts: list[Future[None]]) -> Chunk:
    for part in parts:
        part.result()
    return chunk
