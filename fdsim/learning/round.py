"""One round of learning: whose updates are received, what they add up to, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fdsim.errors import NumericalError
from fdsim.kernels import updates as update_kernel
from fdsim.learning.blend_check import blend_of, check_state, correction_of
from fdsim.learning.counterfactual import Counterfactual, SubstitutionError
from fdsim.learning.friends import CLUSTERS_UP_TO, friend_figures
from fdsim.learning.records import client_rows, round_row, snapshot_of
from fdsim.learning.similarity import PairScores, UpdateComparer, by_kernel, pair_scores
from fdsim.learning.stopwatch import Stopwatch
from fdsim.learning.torch_threads import torch_threads
from fdsim.learning.trainer import Chunk, Digest, DigestingTrainer, DigestRequest, Evaluation
from fdsim.strategies.base import Blend, Cohort, Federation, Feedback, Strategy
from fdsim.telemetry.schema import ClientRows, RoundRow, SimilaritySnapshot
from fdsim.trace import Cause, Phase, TraceRound

if TYPE_CHECKING:
    from fdsim.learning.engine import Learner, Task


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
        seed=federation.seed,
        work_frac=work_frac,
    )


class Round:
    """One round of one strategy, from the blend before training to the rows it leaves behind.

    `train`, `settle` and `conclude` follow each other. What training computes stays on the accelerator until `settle`
    fetches all of it at once. Until `conclude` the strategy's state changes only through `Strategy.store`.
    """

    #: What the round leaves behind; the snapshot where one was due.
    row: RoundRow
    clients: ClientRows
    snapshot: SimilaritySnapshot | None = None
    #: How good the global model is after the round, where it was evaluated.
    evaluation: Evaluation | None = None
    pair_scores: PairScores | None = None
    #: None unless the counterfactual is on.
    substitution_error: SubstitutionError | None = None
    #: [S, n] what the strategy returned when it stored updates.
    figures: np.ndarray | None = None
    update_norm = 0.0
    pairs_multiplied = 0

    def __init__(
        self,
        strategy: Strategy,
        task: Task,
        comparer: UpdateComparer | None,
        trace_round: TraceRound,
        learner: Learner,
    ) -> None:
        self.watch = Stopwatch()
        self.strategy, self.task, self.trace_round = strategy, task, trace_round
        self._comparer, self._state = comparer, learner.strategy_state
        self.cohort = cohort = cohort_of(strategy, task.federation, trace_round, learner.params)
        self.learning_rate = task.training.learning_rate_in(cohort.round_index)
        #: [P] the global update, on the accelerator; zero when no client was active.
        self.update = torch.zeros_like(cohort.params)
        #: [S] mean training loss of each active client.
        self.losses = np.empty(0)
        #: None when no client was active.
        self.blend: Blend | None = None
        self._wanted: np.ndarray | None = None
        self._order: list[np.ndarray] = []
        #: What the host is to know of the round; see `settle`.
        self._tensors: dict[str, Tensor] = {}
        with self.watch.on("blend"):
            if len(cohort.active):
                self.blend = blend_of(strategy, self._state, cohort)
                if comparer is not None:
                    self._wanted = strategy.pairs(self._state, cohort)
                    comparer.begin(cohort.round_index, self._wanted, len(cohort.active))
        self._counterfactual: Counterfactual | None = None
        if task.telemetry.counterfactual:
            with self.watch.on("analytics"):
                self._counterfactual = Counterfactual(strategy, self._state, cohort, self.blend)

    @property
    def _needs_updates(self) -> bool:
        """Whether whole updates are needed, and not just their weighted sum and sketches."""
        compares_whole = self._comparer is not None and self._comparer.whole
        return compares_whole or self.strategy.stores or self._counterfactual is not None

    def train(self) -> None:
        """Train the active clients, and stream their results into the update."""
        if self.blend is None:
            return
        cohort, comparer, blend, trainer = self.cohort, self._comparer, self.blend, self.task.trainer
        who = cohort.params, cohort.active, cohort.round_index, cohort.work_frac
        chunks: Iterator[Chunk] | Iterator[Digest]
        if isinstance(trainer, DigestingTrainer) and not self._needs_updates:
            chunks = trainer.digest(*who, DigestRequest(blend.weights, self.strategy.update_score.sketch_dim))
        else:
            chunks = trainer.train(*who)
        losses: list[Tensor] = []
        figures: list[Tensor] = []
        received: Iterable[Chunk | Digest] = self.watch.over("train", chunks)
        waits = comparer is not None and comparer.holds_updates
        if waits:
            # They are there until the end in any case: blending waits until nobody trains any more.
            received = list(received)
        for chunk in received:
            positions = np.searchsorted(cohort.active, chunk.clients)
            self._order.append(positions)
            losses.append(chunk.losses)
            alone = waits or (isinstance(chunk, Chunk) and chunk.last)
            with self.watch.on("blend"), torch_threads(torch.get_num_threads() if alone else 1):
                if isinstance(chunk, Digest):
                    self.update += chunk.weighted_sum
                    if comparer is not None and chunk.sketches is not None:
                        comparer.add_rows(positions, chunk.sketches)
                    continue
                self._add(chunk.updates, blend.weights[positions])
                if comparer is not None:
                    comparer.add(positions, chunk.updates)
                if self.strategy.stores:
                    stored = self.strategy.store(self._state, cohort, chunk.clients, chunk.updates)
                    if stored is not None:
                        figures.append(stored)
            if self._counterfactual is not None:
                with self.watch.on("analytics"):
                    self._counterfactual.add(positions, chunk)
        with self.watch.on("blend"):
            correction = None if blend.correction is None else correction_of(self.strategy, cohort, blend)
            if correction is not None:
                self.update += correction
            self._tensors["losses"] = torch.cat(losses)
            if figures:
                self._tensors["figures"] = torch.cat(figures)
            if comparer is not None:
                self._tensors["products"] = comparer.products()
                self.pairs_multiplied = comparer.pairs

    def _add(self, updates: Tensor, weights: np.ndarray) -> None:
        """Add the weighted sum of some updates [C, P] to the global update."""
        if by_kernel(self.task.federation):
            update_kernel.add_weighted_(self.update, update_kernel.addresses(updates), weights)
        else:
            self.update.addmv_(updates.T, torch.as_tensor(weights).to(self.update))

    def settle(self) -> None:
        """Measure the substitution error, then bring all that the host is to know there, in one transfer."""
        counterfactual, cohort, tensors = self._counterfactual, self.cohort, self._tensors
        tensors["update_norm"] = torch.linalg.vector_norm(self.update).reshape(1)
        if counterfactual is not None:
            with self.watch.on("analytics"):
                tensors |= counterfactual.measure(
                    self.task.trainer, self.update, learning_rate=self.learning_rate
                )
        # Waiting belongs to training, which is what the accelerator is busy with.
        with self.watch.on("train"):
            flat = torch.cat([tensor.reshape(-1) for tensor in tensors.values()]).cpu().numpy()
        ends = np.cumsum([tensor.numel() for tensor in tensors.values()])[:-1]
        host = {
            name: part.reshape(tuple(tensor.shape))
            for (name, tensor), part in zip(
                tensors.items(), np.split(flat.astype(np.float64), ends), strict=True
            )
        }
        self.update_norm = float(host["update_norm"][0])
        if "losses" in host:
            order = np.argsort(np.concatenate(self._order))
            self.losses = host["losses"][order]
            self.figures = host["figures"][order] if "figures" in host else None
        _check_finite(cohort, self.losses, self.update_norm)
        if "products" in host:
            with self.watch.on("blend"):
                self.pair_scores = pair_scores(
                    host["products"],
                    self._wanted,
                    self.strategy.update_score,
                    learning_rate=self.learning_rate,
                )
        if counterfactual is not None:
            self.substitution_error = counterfactual.error(host)

    def conclude(self, learner: Learner) -> None:
        """Let strategy, server and analytics take the round in, and record it."""
        strategy, task, watch, round_index = self.strategy, self.task, self.watch, self.cohort.round_index
        # In a round without active clients nothing moves, and the strategy has nothing to report.
        report: dict[str, float] = {}
        with watch.on("blend"):
            if self.blend is not None:
                scores = None if self.pair_scores is None else self.pair_scores.scores
                feedback = Feedback(scores, self.losses, self.figures, self.learning_rate)
                after = strategy.after_round(learner.strategy_state, self.cohort, feedback)
                learner.strategy_state = check_state(strategy, "after_round", after)
                report = strategy.report(learner.strategy_state)
                learner.params, learner.optimiser_state = task.training.server_optimiser.step(
                    learner.params, self.update, learner.optimiser_state, task.training.global_learning_rate
                )
        if task.due(task.telemetry.evaluate_every, round_index):
            with watch.on("evaluate"):
                self.evaluation = task.trainer.evaluate(learner.params)
        with watch.on("analytics"):
            true_cluster, analytics = task.federation.true_cluster, learner.analytics
            snapshot_due = task.due(task.telemetry.similarity_every, round_index)
            clustered = true_cluster is not None and len(true_cluster) <= CLUSTERS_UP_TO
            compared = self.evaluation is not None and clustered
            friendship = strategy.friendship(learner.strategy_state) if compared or snapshot_due else None
            friends = friend_figures(
                strategy,
                self.cohort,
                self.blend,
                true_cluster,
                analytics["last_stand_in"],
                friendship=friendship if compared else None,
            )
            _follow(analytics, self)
            if snapshot_due:
                self.snapshot = snapshot_of(round_index, friendship, analytics.get("distance"))
        learner.next_round = round_index + 1
        self.row, self.clients = round_row(self, friends, report), client_rows(self)
        # Rounds may be kept for long: what was large and only needed on the way goes.
        self._counterfactual, self._tensors, self.pair_scores = None, {}, None
        self.update = self.update.new_empty(0)


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


def _follow(analytics: dict[str, Any], done: Round) -> None:
    """Note each missing client's stand-in, and add to the mean distance of each pair compared."""
    cohort, blend, pairs = done.cohort, done.blend, done.pair_scores
    if blend is not None:
        single = blend.stand_in >= 0
        analytics["last_stand_in"][cohort.missing[single]] = blend.stand_in[single]
    if pairs is not None and "distance" in analytics:
        known = np.isfinite(pairs.distances)
        where = tuple(cohort.active[places] for places in np.nonzero(known))
        analytics["distances"][where] += 1
        mean = analytics["distance"]
        mean[where] += (pairs.distances[known] - mean[where]) / analytics["distances"][where]
