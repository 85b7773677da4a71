"""One round of learning: whose updates are received, what they add up to, and what became of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fdsim.errors import NumericalError
from fdsim.learning.counterfactual import Counterfactual, SubstitutionError, add_weighted_
from fdsim.learning.similarity import PairScores, UpdateComparer, pair_scores
from fdsim.learning.stopwatch import Stopwatch
from fdsim.learning.trainer import Chunk, Digest, DigestingTrainer, DigestRequest
from fdsim.strategies.base import Blend, Cohort, Federation, Strategy
from fdsim.trace import Cause, Phase, TraceRound

if TYPE_CHECKING:
    from fdsim.learning.engine import Learner, Task


@dataclass(frozen=True)
class RoundOutcome:
    """What became of a round. All of it is on the host but for the update."""

    trace_round: TraceRound
    cohort: Cohort
    blend: Blend | None
    """None when no client was active."""
    update: Tensor
    """[P] the global update, on the accelerator; zero when no client was active."""
    update_norm: float
    losses: np.ndarray
    """[S] mean training loss of each active client."""
    figures: np.ndarray | None
    """[S, n] what the strategy returned when it stored updates."""
    learning_rate: float
    pair_scores: PairScores | None
    pairs_multiplied: int
    substitution_error: SubstitutionError | None
    """None unless the counterfactual is on."""


def cohort_of(strategy: Strategy, federation: Federation, trace_round: TraceRound, params: Tensor) -> Cohort:
    """Return whose updates a strategy gets in a round of the trace."""
    selected, active = trace_round.selected, trace_round.completed
    work_frac = None
    if strategy.trains_missing:
        active = selected
    elif strategy.takes_partial:
        cut_off = (trace_round.cause == Cause.deadline) & (trace_round.phase == Phase.train)
        partial = np.flatnonzero(cut_off & (trace_round.progress > 0))
        if len(partial):
            active = np.union1d(active, partial)
            work_frac = np.where(np.isin(active, partial), trace_round.progress[active], 1.0)
    weight = np.zeros(federation.clients)
    weight[selected] = federation.client_weight[selected]
    total = weight.sum()
    return Cohort(
        round_index=trace_round.round,
        active=active,
        missing=np.setdiff1d(selected, active),
        client_weight=weight / total if total > 0 else weight,
        params=params,
        work_frac=work_frac,
    )


class Round:
    """A round under way: tensors stay on the accelerator until `run` fetches them all at once.

    The strategy's state changes only through `Strategy.store`.
    """

    def __init__(
        self,
        strategy: Strategy,
        task: Task,
        comparer: UpdateComparer | None,
        trace_round: TraceRound,
        learner: Learner,
    ) -> None:
        self.watch = Stopwatch()
        self._strategy, self._task, self._comparer = strategy, task, comparer
        self._trace_round, self._state = trace_round, learner.strategy_state
        self._cohort = cohort = cohort_of(strategy, task.federation, trace_round, learner.params)
        self._update = torch.zeros_like(cohort.params)
        self._wanted: np.ndarray | None = None
        self._order: list[np.ndarray] = []
        self._blend: Blend | None = None
        with self.watch.on("blend"):
            if len(cohort.active):
                self._blend = strategy.blend(self._state, cohort)
                if comparer is not None:
                    self._wanted = strategy.pairs(self._state, cohort)
                    comparer.begin(cohort.round_index, self._wanted, len(cohort.active))
        self._counterfactual: Counterfactual | None = None
        if task.telemetry.counterfactual:
            with self.watch.on("analytics"):
                self._counterfactual = Counterfactual(strategy, self._state, cohort, self._blend)

    def run(self) -> RoundOutcome:
        """Train the active clients, blend their updates, and wait for the accelerator once."""
        cohort, trainer, counterfactual = self._cohort, self._task.trainer, self._counterfactual
        learning_rate = trainer.learning_rate(cohort.round_index)
        tensors = {} if self._blend is None else self._train(self._blend)
        tensors["update_norm"] = torch.linalg.vector_norm(self._update).reshape(1)
        if counterfactual is not None:
            with self.watch.on("analytics"):
                chunks = trainer.train(cohort.params, counterfactual.clients, cohort.round_index)
                tensors |= counterfactual.measure(
                    chunks if len(counterfactual.clients) else (), self._update, learning_rate=learning_rate
                )
        # Waiting belongs to training, which is what the accelerator is busy with.
        with self.watch.on("train"):
            host = _fetch(tensors)
        losses, figures, update_norm = np.empty(0), None, float(host["update_norm"][0])
        if "losses" in host:
            order = np.argsort(np.concatenate(self._order))
            losses = host["losses"][order]
            figures = host["figures"][order] if "figures" in host else None
        _check_finite(cohort, losses, update_norm)
        scores = None
        if "products" in host:
            with self.watch.on("blend"):
                scores = pair_scores(
                    host["products"], self._wanted, self._strategy.update_score, learning_rate=learning_rate
                )
        return RoundOutcome(
            trace_round=self._trace_round,
            cohort=cohort,
            blend=self._blend,
            update=self._update,
            update_norm=update_norm,
            losses=losses,
            figures=figures,
            learning_rate=learning_rate,
            pair_scores=scores,
            pairs_multiplied=0 if self._comparer is None or self._blend is None else self._comparer.pairs,
            substitution_error=None if counterfactual is None else counterfactual.error(host),
        )

    @property
    def _needs_updates(self) -> bool:
        """Whether whole updates are needed, and not just their weighted sum and sketches."""
        compares_whole = self._comparer is not None and self._strategy.update_score.sketch_dim is None
        return compares_whole or self._strategy.stores or self._counterfactual is not None

    def _train(self, blend: Blend) -> dict[str, Tensor]:
        """Stream the active clients' results into the update; return their losses and inner products."""
        cohort, comparer, trainer = self._cohort, self._comparer, self._task.trainer
        chunks: Iterator[Chunk] | Iterator[Digest]
        if isinstance(trainer, DigestingTrainer) and not self._needs_updates:
            request = DigestRequest(blend.weights, self._strategy.update_score.sketch_dim)
            chunks = trainer.digest(
                cohort.params, cohort.active, cohort.round_index, cohort.work_frac, request
            )
        else:
            chunks = trainer.train(
                cohort.params, cohort.active, cohort.round_index, work_frac=cohort.work_frac
            )
        losses: list[Tensor] = []
        figures: list[Tensor] = []
        received: Iterator[Chunk | Digest] = self.watch.over("train", chunks)
        for chunk in received:
            positions = np.searchsorted(cohort.active, chunk.clients)
            self._order.append(positions)
            losses.append(chunk.losses)
            if isinstance(chunk, Digest):
                with self.watch.on("blend"):
                    self._update += chunk.weighted_sum
                    if comparer is not None and chunk.sketches is not None:
                        comparer.add_rows(positions, chunk.sketches)
                continue
            with self.watch.on("blend"):
                add_weighted_(self._update, blend.weights[positions], chunk.updates)
                if comparer is not None:
                    comparer.add(positions, chunk.updates)
                if self._strategy.stores:
                    stored = self._strategy.store(self._state, cohort, chunk.clients, chunk.updates)
                    if stored is not None:
                        figures.append(stored)
            if self._counterfactual is not None:
                with self.watch.on("analytics"):
                    self._counterfactual.add(positions, chunk)
        with self.watch.on("blend"):
            if blend.correction is not None:
                self._update += blend.correction
            tensors = {"losses": torch.cat(losses)}
            if figures:
                tensors["figures"] = torch.cat(figures)
            return tensors if comparer is None else tensors | {"products": comparer.products()}


def _fetch(tensors: dict[str, Tensor]) -> dict[str, np.ndarray]:
    """Bring small tensors to the host as float64 arrays, in one transfer."""
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors.values()]).cpu().numpy().astype(np.float64)
    parts = np.split(flat, np.cumsum([tensor.numel() for tensor in tensors.values()])[:-1])
    return {
        name: part.reshape(tuple(tensor.shape))
        for (name, tensor), part in zip(tensors.items(), parts, strict=True)
    }


def _check_finite(cohort: Cohort, losses: np.ndarray, update_norm: float) -> None:
    bad = ~np.isfinite(losses)
    if bad.any():
        raise NumericalError(
            f"round {cohort.round_index}, client {int(cohort.active[np.argmax(bad)])}: loss or update is"
            f" not finite ({int(bad.sum())} of {len(bad)} clients affected)."
            " Lower training.learning_rate or set training.clip_norm"
        )
    if not np.isfinite(update_norm):
        # Norms of single updates are not brought to the host; a client that diverges also has the largest loss.
        worst = int(np.argmax(losses))
        raise NumericalError(
            f"round {cohort.round_index}: the global update is not finite though every client's is"
            f" (largest loss: client {int(cohort.active[worst])}, {losses[worst]:.3g})."
            " Lower training.learning_rate or training.global_learning_rate"
        )
