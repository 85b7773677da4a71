"""One cohort over several shards: processes, machines or GPUs that each train a slice of a round's clients.

A shard sends back what the round needs and no more: a weighted sum [P] and losses where the strategy only
averages, sketches [C, m] besides where it compares sketches, whole updates [C, P] only where it stores or compares
those. Shards keep no state between calls, so a lost one can be replaced in the middle of a round.

Sums are taken shard by shard, so results agree with one process within rounding: 1e-9 relative in float64, 1e-4 in
float32 over a short run, and not to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from fdsim.learning.counterfactual import add_weighted_
from fdsim.learning.similarity import Sketch
from fdsim.learning.trainer import Chunk, Digest, DigestRequest, Evaluation, Trainer

if TYPE_CHECKING:
    from fdsim.learning.engine import Task


@dataclass(frozen=True)
class Order:
    """What a shard does in a round: which clients it trains, and what it sends back."""

    clients: np.ndarray
    """[C]"""
    round_index: int
    work_frac: np.ndarray | None
    """[C]"""
    digest: DigestRequest | None
    """What to reduce the updates to; None asks for whole updates."""


@dataclass(frozen=True)
class Parts:
    """What a shard sends back, as arrays; clients in the order in which they were trained."""

    clients: np.ndarray
    losses: np.ndarray
    updates: np.ndarray | None
    """[C, P]"""
    weighted_sum: np.ndarray | None
    """[P]"""
    sketches: np.ndarray | None
    """[C, m]"""


class Shard(Protocol):
    """A place that trains; `begin` returns at once with something `collect` waits for."""

    def begin(self, start: Any, order: Order) -> Any: ...
    def collect(self, handle: Any) -> Parts: ...


class ShardedCohort:
    """A trainer whose clients are trained by shards; evaluation stays with the trainer at home."""

    def __init__(self, home: Trainer, shards: Sequence[Shard], publish: Any) -> None:
        self._home, self._shards = home, list(shards)
        #: Puts the parameters where all shards can fetch them, once per round.
        self._publish = publish

    def initial(self) -> Tensor:
        """Return the parameters [P] a run starts from."""
        return self._home.initial()

    def evaluate(self, params: Tensor) -> Evaluation:
        """Evaluate parameters [P] on the test set."""
        return self._home.evaluate(params)

    def named(self, params: Tensor) -> dict[str, Tensor]:
        """Return parameters [P] as the net's state dict, on the host."""
        return self._home.named(params)

    def train(
        self, start: Tensor, clients: np.ndarray, round_index: int, work_frac: np.ndarray | None = None
    ) -> Iterator[Chunk]:
        """Yield whole updates, one chunk per shard."""
        for parts in self._ask(start, clients, round_index, work_frac, None):
            if parts.updates is None:
                raise ValueError("a shard sent no updates back")
            yield Chunk(np.array(parts.clients), _to(start, parts.updates), _to(start, parts.losses))

    def digest(
        self,
        start: Tensor,
        clients: np.ndarray,
        round_index: int,
        work_frac: np.ndarray | None,
        request: DigestRequest,
    ) -> Iterator[Digest]:
        """Yield weighted sums, losses and sketches, one digest per shard."""
        for parts in self._ask(start, clients, round_index, work_frac, request):
            if parts.weighted_sum is None:
                raise ValueError("a shard sent no weighted sum back")
            sketches = None if parts.sketches is None else _to(start, parts.sketches)
            yield Digest(
                np.array(parts.clients), _to(start, parts.weighted_sum), sketches, _to(start, parts.losses)
            )

    def _ask(
        self,
        start: Tensor,
        clients: np.ndarray,
        round_index: int,
        work_frac: np.ndarray | None,
        request: DigestRequest | None,
    ) -> Iterator[Parts]:
        """Give every shard its slice, then wait for them in turn: their order never depends on who is faster."""
        clients = np.asarray(clients)
        published = self._publish(start.detach().cpu().numpy())
        under_way = []
        for number, shard in enumerate(self._shards):
            slice_ = np.arange(number, len(clients), len(self._shards))
            if len(slice_):
                order = Order(
                    clients=clients[slice_],
                    round_index=round_index,
                    work_frac=None if work_frac is None else np.asarray(work_frac)[slice_],
                    digest=None
                    if request is None
                    else DigestRequest(request.weights[slice_], request.sketch_dim),
                )
                under_way.append((shard, shard.begin(published, order)))
        for shard, handle in under_way:
            yield shard.collect(handle)


def _to(start: Tensor, array: np.ndarray) -> Tensor:
    return _tensor(array).to(device=start.device, dtype=start.dtype)


def _tensor(array: np.ndarray) -> Tensor:
    # Arrays that came through an object store are read-only, which torch tensors cannot be: hence the copy.
    return torch.from_numpy(np.array(array))


def carry_out(task: Task, start: np.ndarray, order: Order) -> Parts:
    """Train a shard's clients with its own task, and return what was asked for."""
    federation, digest = task.federation, order.digest
    params = _tensor(start).to(device=federation.accelerator, dtype=federation.dtype)
    position = {int(client): at for at, client in enumerate(order.clients)}
    weighted_sum = torch.zeros_like(params)
    sketch = None
    if digest is not None and digest.sketch_dim is not None:
        sketch = Sketch(federation, digest.sketch_dim, round_index=order.round_index)
    clients: list[np.ndarray] = []
    losses: list[Tensor] = []
    rows: list[Tensor] = []
    for chunk in task.trainer.train(params, order.clients, order.round_index, work_frac=order.work_frac):
        clients.append(chunk.clients)
        losses.append(chunk.losses)
        if digest is None:
            rows.append(chunk.updates)
            continue
        weights = digest.weights[[position[int(client)] for client in chunk.clients]]
        add_weighted_(weighted_sum, weights, chunk.updates)
        if sketch is not None:
            rows.append(sketch.of(chunk.updates))
    stacked = torch.cat(rows).cpu().numpy() if rows else None
    return Parts(
        clients=np.concatenate(clients),
        losses=torch.cat(losses).cpu().numpy(),
        updates=stacked if digest is None else None,
        weighted_sum=None if digest is None else weighted_sum.cpu().numpy(),
        sketches=None if digest is None else stacked,
    )
