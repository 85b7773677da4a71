"""One round of learning: what the active clients send, and the global update that comes of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fdsim.errors import NumericalError
from fdsim.learning.attendance import Attendance
from fdsim.learning.counterfactual import Counterfactual, add_weighted_
from fdsim.learning.similarity import Compared, UpdateComparer, blocks_of, compared
from fdsim.learning.stopwatch import Stopwatch
from fdsim.learning.trainer import Chunk, DigestingTrainer, Needs
from fdsim.learning.transfer import HostTransfer
from fdsim.strategies.base import Blend, Cohort, State, Strategy

if TYPE_CHECKING:
    from fdsim.learning.engine import Task


@dataclass(frozen=True)
class Played:
    """What became of a round; arrays over the S active, or over `error_clients`, trained off the books."""

    update: Tensor | None
    blend: Blend | None
    losses: np.ndarray
    update_norm: float
    compared: Compared | None
    pairs_computed: int
    pairs_multiplied: int
    error: float | None
    error_clients: np.ndarray
    error_squared: np.ndarray
    error_cosine: np.ndarray


@dataclass(frozen=True)
class Table:
    """Those who play: a strategy, its task, and the comparer in which updates are compared, if they are."""

    strategy: Strategy
    task: Task
    comparer: UpdateComparer | None


def play(table: Table, state: State, attendance: Attendance, watch: Stopwatch) -> Played:
    """Train a round's clients and blend their updates; `state` changes only through `Strategy.store`."""
    game = _Game(table, state, attendance, watch)
    game.blend_first()
    if game.blend is not None:
        game.train()
    game.transfer.put("update_norm", torch.linalg.vector_norm(game.update).reshape(1))
    if game.counterfactual is not None:
        game.train_off_the_books(game.counterfactual)
    return game.result()


class _Game:
    """A round under way: tensors pile up on the accelerator until `result` fetches them all at once."""

    def __init__(self, table: Table, state: State, attendance: Attendance, watch: Stopwatch) -> None:
        self.strategy, self.task, self.comparer = table.strategy, table.task, table.comparer
        self.state, self.watch = state, watch
        self.cohort, self.attendance = attendance.cohort, attendance
        self.learning_rate = table.task.trainer.learning_rate(self.cohort.round_index)
        self.update = torch.zeros_like(self.cohort.params)
        self.transfer = HostTransfer()
        self.blend: Blend | None = None
        self.wanted: np.ndarray | None = None
        self.counterfactual: Counterfactual | None = None
        self.order: list[np.ndarray] = []
        self.pairs_multiplied = 0
        self.off_the_books = np.empty(0, dtype=np.int64)

    def blend_first(self) -> None:
        """Ask the strategy for its blend, which it knows before any training."""
        cohort, strategy = self.cohort, self.strategy
        with self.watch.on("blend"):
            if len(cohort.active):
                self.blend = strategy.blend(self.state, cohort)
                if self.comparer is not None:
                    self.wanted = strategy.pairs(self.state, cohort)
                    blocks = blocks_of(self.wanted, len(cohort.active))
                    self.pairs_multiplied = blocks.pairs
                    self.comparer.begin(cohort.round_index, blocks, len(cohort.active))
        if self.task.counterfactual:
            with self.watch.on("analytics"):
                self.counterfactual = Counterfactual(
                    strategy, self.state, cohort, self.blend, self.attendance.partial
                )

    def train(self) -> None:
        """Stream the active clients' updates into the blend."""
        if self.blend is None:
            raise ValueError("nobody arrived, so there is nothing to train")
        cohort, blend = self.cohort, self.blend
        losses: list[Tensor] = []
        chunks: Iterator[Chunk] = iter(())
        if isinstance(self.task.trainer, DigestingTrainer) and self._needs_no_update_whole:
            self._take_digests(self.task.trainer, blend, losses)
        else:
            chunks = self.task.trainer.train(
                cohort.params, cohort.active, cohort.round_index, work_frac=self.attendance.work_frac
            )
        for chunk in self.watch.over("train", chunks):
            with self.watch.on("blend"):
                positions = np.searchsorted(cohort.active, chunk.clients)
                add_weighted_(self.update, blend.weights[positions], chunk.updates)
                self.order.append(positions)
                losses.append(chunk.losses)
                if self.comparer is not None:
                    self.comparer.add(positions, chunk.updates)
                if self.strategy.stores:
                    self.strategy.store(self.state, cohort, chunk.clients, chunk.updates)
            if self.counterfactual is not None:
                with self.watch.on("analytics"):
                    self.counterfactual.arrive(positions, chunk.clients, chunk.updates)
        with self.watch.on("blend"):
            if blend.correction is not None:
                self.update += blend.correction
            self.transfer.put("losses", torch.cat(losses))
            if self.comparer is not None:
                self.transfer.put("products", self.comparer.products())

    @property
    def _needs_no_update_whole(self) -> bool:
        compares_whole = self.comparer is not None and self.strategy.comparison.sketch_dim is None
        return not compares_whole and not self.strategy.stores and self.counterfactual is None

    def _take_digests(self, trainer: DigestingTrainer, blend: Blend, losses: list[Tensor]) -> None:
        """Add up what far-away trainers have made of their clients' updates."""
        cohort = self.cohort
        needs = Needs(
            blend.weights, self.strategy.comparison.sketch_dim if self.comparer is not None else None
        )
        digests = trainer.digest(
            cohort.params, cohort.active, cohort.round_index, self.attendance.work_frac, needs
        )
        for digest in self.watch.over("train", digests):
            with self.watch.on("blend"):
                positions = np.searchsorted(cohort.active, digest.clients)
                self.update += digest.weighted
                self.order.append(positions)
                losses.append(digest.losses)
                if self.comparer is not None and digest.sketches is not None:
                    self.comparer.add_rows(positions, digest.sketches)

    def train_off_the_books(self, counterfactual: Counterfactual) -> None:
        """Train whoever was missing, for measurement alone."""
        cohort = self.cohort
        with self.watch.on("analytics"):
            chunks = self.task.trainer.train(cohort.params, counterfactual.clients, cohort.round_index)
            measured = counterfactual.measure(
                chunks if len(counterfactual.clients) else (), self.update, learning_rate=self.learning_rate
            )
            self.off_the_books = measured.clients
            self.transfer.put("error", measured.aggregate)
            self.transfer.put("error_squared", measured.squared)
            self.transfer.put("error_cosine", measured.cosine)

    def result(self) -> Played:
        """Wait for the accelerator, once, and return the round."""
        # Waiting belongs to training, which is what the accelerator is busy with.
        with self.watch.on("train"):
            host = self.transfer.fetch()
        nothing = np.empty(0)
        update_norm = float(host["update_norm"][0])
        if self.blend is not None:
            host["losses"] = host["losses"][np.argsort(np.concatenate(self.order))]
            _check_finite(self.cohort, host["losses"], update_norm)
        found = None
        if "products" in host:
            with self.watch.on("blend"):
                found = compared(
                    host["products"], self.wanted, self.strategy.comparison, learning_rate=self.learning_rate
                )
        return Played(
            update=self.update if self.blend is not None else None,
            blend=self.blend,
            losses=host.get("losses", nothing),
            update_norm=update_norm,
            compared=found,
            pairs_computed=0 if found is None else int(np.isfinite(found.scores).sum()) // 2,
            pairs_multiplied=self.pairs_multiplied,
            error=float(host["error"][0]) if "error" in host else None,
            error_clients=self.off_the_books,
            error_squared=host.get("error_squared", nothing),
            error_cosine=host.get("error_cosine", nothing),
        )


def _check_finite(cohort: Cohort, losses: np.ndarray, update_norm: float) -> None:
    bad = ~np.isfinite(losses)
    if bad.any():
        raise NumericalError(
            f"round {cohort.round_index}, client {int(cohort.active[np.argmax(bad)])}: its loss or update is"
            f" not finite (so for {int(bad.sum())} of {len(bad)} clients)."
            " Lower training.learning_rate or set training.clip_norm"
        )
    if not np.isfinite(update_norm):
        # Norms of single updates are not brought to the host; the client that ran away also has the largest loss.
        worst = int(np.argmax(losses)) if len(losses) else None
        told = (
            "" if worst is None else f" (client {int(cohort.active[worst])} lost most, {losses[worst]:.3g})"
        )
        raise NumericalError(
            f"round {cohort.round_index}: the global update is not finite though every client's is{told}."
            " Lower training.learning_rate or training.global_learning_rate"
        )
