"""One round of learning: who is in it, what they send, and the global update that comes of it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from torch import Tensor

from fdsim.errors import NumericalError
from fdsim.learning.counterfactual import Counterfactual, pour
from fdsim.learning.gallery import Compared, Gallery, blocks_of, compared
from fdsim.strategies.base import Blend, Cohort, Setting, State, Strategy
from fdsim.trace import Cause, Phase, TraceRound

if TYPE_CHECKING:
    from fdsim.learning.engine import Task

Item = TypeVar("Item")


class Stopwatch:
    """Adds up real time by what it was spent on."""

    def __init__(self) -> None:
        self._began_s = time.perf_counter()
        self.spent_s = {"train": 0.0, "blend": 0.0, "evaluate": 0.0, "analytics": 0.0}

    @contextmanager
    def on(self, purpose: str) -> Iterator[None]:
        """Counts the time inside towards a purpose."""
        began_s = time.perf_counter()
        try:
            yield
        finally:
            self.spent_s[purpose] += time.perf_counter() - began_s

    def over(self, purpose: str, items: Iterable[Item]) -> Iterator[Item]:
        """Yields items, counting only the time it takes to make them."""
        source = iter(items)
        while True:
            with self.on(purpose):
                try:
                    item = next(source)
                except StopIteration:
                    return
            yield item

    @property
    def total_s(self) -> float:
        """Seconds since the watch was made."""
        return time.perf_counter() - self._began_s


class Parcel:
    """Collects small tensors on the accelerator and brings them to the host in one transfer."""

    def __init__(self) -> None:
        self._tensors: dict[str, Tensor] = {}

    def put(self, name: str, tensor: Tensor) -> None:
        """Adds a tensor under a name."""
        self._tensors[name] = tensor

    def fetch(self) -> dict[str, np.ndarray]:
        """Waits for the accelerator and answers with everything as float64 arrays."""
        flat = (
            torch.cat([tensor.reshape(-1) for tensor in self._tensors.values()])
            .cpu()
            .numpy()
            .astype(np.float64)
        )
        parts = np.split(flat, np.cumsum([tensor.numel() for tensor in self._tensors.values()])[:-1])
        return {
            name: part.reshape(tuple(tensor.shape))
            for (name, tensor), part in zip(self._tensors.items(), parts, strict=True)
        }


@dataclass(frozen=True)
class Attendance:
    """A round's cohort, and the clients in it whose work was cut short but taken all the same."""

    cohort: Cohort
    partial: np.ndarray
    work_frac: np.ndarray | None
    """[S] share of the local work that each arrived client has done; None when all of it."""


def attendance_of(
    strategy: Strategy, setting: Setting, trace_round: TraceRound, params: Tensor
) -> Attendance:
    """Works out whose updates a strategy gets in a round."""
    selected, arrived = trace_round.selected, trace_round.completed
    partial = np.empty(0, dtype=np.int64)
    work_frac = None
    if strategy.trains_missing:
        arrived = selected
    elif strategy.takes_partial:
        cut_off = (trace_round.cause == Cause.deadline) & (trace_round.phase == Phase.train)
        partial = np.flatnonzero(cut_off & (trace_round.progress > 0))
        if len(partial):
            arrived = np.union1d(arrived, partial)
            work_frac = np.where(np.isin(arrived, partial), trace_round.progress[arrived], 1.0)
    share = np.zeros(setting.clients)
    share[selected] = setting.share[selected]
    total = share.sum()
    cohort = Cohort(
        round_index=trace_round.round,
        arrived=arrived,
        missing=np.setdiff1d(selected, arrived),
        share=share / total if total > 0 else share,
        params=params,
    )
    return Attendance(cohort, partial, work_frac)


@dataclass(frozen=True)
class Played:
    """What became of a round; arrays over the S arrived, or over `error_clients`, trained off the books."""

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


def play(strategy: Strategy, task: Task, state: State, attendance: Attendance, watch: Stopwatch) -> Played:
    """Trains a round's clients and blends their updates; `state` changes only through `Strategy.keep`."""
    cohort = attendance.cohort
    arrived, round_index = cohort.arrived, cohort.round_index
    blend, wanted, gallery = None, None, None
    with watch.on("blend"):
        update = torch.zeros_like(cohort.params)
        if len(arrived):
            blend = strategy.blend(state, cohort)
            if strategy.compares:
                wanted = strategy.pairs(state, cohort)
                gallery = Gallery(
                    strategy.comparison, task.setting, round_index=round_index, arrived=len(arrived)
                )
    counterfactual = None
    if task.counterfactual:
        with watch.on("analytics"):
            counterfactual = Counterfactual(strategy, state, cohort, blend, attendance.partial)
    parcel = Parcel()
    order: list[np.ndarray] = []
    losses: list[Tensor] = []
    if blend is not None:
        chunks = task.trainer.train(cohort.params, arrived, round_index, work_frac=attendance.work_frac)
        for chunk in watch.over("train", chunks):
            with watch.on("blend"):
                positions = np.searchsorted(arrived, chunk.clients)
                pour(update, blend.weights[positions], chunk.updates)
                order.append(positions)
                losses.append(chunk.losses)
                if gallery is not None:
                    gallery.add(positions, chunk.updates)
                if strategy.stores:
                    strategy.keep(state, cohort, chunk.clients, chunk.updates)
            if counterfactual is not None:
                with watch.on("analytics"):
                    counterfactual.arrive(positions, chunk.clients, chunk.updates)
        with watch.on("blend"):
            if blend.correction is not None:
                update += blend.correction
            parcel.put("losses", torch.cat(losses))
    parcel.put("update_norm", torch.linalg.vector_norm(update).reshape(1))
    multiplied = 0
    if gallery is not None:
        with watch.on("blend"):
            blocks = blocks_of(wanted, len(arrived))
            multiplied = blocks.pairs
            parcel.put("products", gallery.products(blocks))
    off_the_books = np.empty(0, dtype=np.int64)
    if counterfactual is not None:
        with watch.on("analytics"):
            learning_rate = task.trainer.learning_rate(round_index)
            truth = (
                task.trainer.train(cohort.params, counterfactual.clients, round_index)
                if len(counterfactual.clients)
                else ()
            )
            measured = counterfactual.measure(truth, update, learning_rate=learning_rate)
            off_the_books = measured.clients
            parcel.put("error", measured.aggregate)
            parcel.put("error_squared", measured.squared)
            parcel.put("error_cosine", measured.cosine)
    # Waiting for the accelerator belongs to training, which is what it is busy with.
    with watch.on("train"):
        host = parcel.fetch()
    nothing = np.empty(0)
    if blend is not None:
        host["losses"] = host["losses"][np.argsort(np.concatenate(order))]
        _check_finite(cohort, host["losses"], float(host["update_norm"][0]))
    found, pairs = None, 0
    if gallery is not None:
        with watch.on("blend"):
            found = compared(
                host["products"],
                wanted,
                strategy.comparison,
                learning_rate=task.trainer.learning_rate(round_index),
            )
            pairs = int(np.isfinite(found.scores).sum()) // 2
    return Played(
        update=update if blend is not None else None,
        blend=blend,
        losses=host.get("losses", nothing),
        update_norm=float(host["update_norm"][0]),
        compared=found,
        pairs_computed=pairs,
        pairs_multiplied=multiplied,
        error=float(host["error"][0]) if "error" in host else None,
        error_clients=off_the_books,
        error_squared=host.get("error_squared", nothing),
        error_cosine=host.get("error_cosine", nothing),
    )


def _check_finite(cohort: Cohort, losses: np.ndarray, update_norm: float) -> None:
    bad = ~np.isfinite(losses)
    if bad.any():
        raise NumericalError(
            f"round {cohort.round_index}, client {int(cohort.arrived[np.argmax(bad)])}: its loss or update is"
            f" not finite (so for {int(bad.sum())} of {len(bad)} clients)."
            " Lower training.learning_rate or set training.clip_norm"
        )
    if not np.isfinite(update_norm):
        raise NumericalError(
            f"round {cohort.round_index}: the global update is not finite though every client's is."
            " Lower training.learning_rate or training.global_learning_rate"
        )
