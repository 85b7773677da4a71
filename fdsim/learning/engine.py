"""The round loop: one strategy learns on a trace, round by round.

The engine owns orchestration: a round (round.py) trains the active clients and blends their updates; then the
strategy takes in what the round has shown, the server optimiser steps, and the round is recorded. Rounds are
pulled from an iterator one at a time, so that a source of rounds may look at the learner before it returns
the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fdsim.errors import TraceError
from fdsim.learning.friends import CLUSTERS_UP_TO, FriendFigures, cluster_agreement, friend_figures
from fdsim.learning.records import client_rows, round_row, snapshot_of
from fdsim.learning.round import Round, RoundOutcome
from fdsim.learning.similarity import UpdateComparer
from fdsim.learning.stopwatch import Stopwatch
from fdsim.learning.trainer import Evaluation, Trainer
from fdsim.strategies.base import Federation, Feedback, State, Strategy
from fdsim.telemetry.schema import ClientRows, RoundRow, SimilaritySnapshot
from fdsim.trace import TraceRound

if TYPE_CHECKING:
    from fdsim.learning.config.training import Training
    from fdsim.telemetry.config import Telemetry


@dataclass(frozen=True)
class Task:
    """What is the same for every strategy that learns on a trace."""

    trainer: Trainer
    federation: Federation
    training: Training
    telemetry: Telemetry
    convolutions: str = "torch"
    """Whose convolutions train: torch's, or our own kernel (direct); they differ in their last bits."""

    def due(self, every: int, round_index: int) -> bool:
        """Whether something done every so many rounds, and after the last one, is done now; 0 is never."""
        return every > 0 and ((round_index + 1) % every == 0 or round_index + 1 == self.federation.rounds)


@dataclass
class Learner:
    """Everything that changes from round to round."""

    next_round: int
    params: Tensor
    optimiser_state: dict[str, Any]
    strategy_state: State
    analytics: dict[str, Any] = field(default_factory=dict)

    def as_state(self) -> dict[str, Any]:
        """Return a flat dict of tensors, arrays and numbers, as checkpoints store it."""
        state: dict[str, Any] = {"next_round": self.next_round, "params": self.params}
        for part in _PARTS:
            state |= {f"{part}.{name}": value for name, value in getattr(self, part).items()}
        return state

    @classmethod
    def from_state(cls, state: dict[str, Any], *, parameters: int) -> Learner:
        """Rebuild the learner from what `as_state` returned; raise an error if it is not that of such a net."""
        if state["params"].shape != (parameters,):
            raise ValueError(f"its net has {list(state['params'].shape)} parameters instead of {parameters}")
        parts: dict[str, dict[str, Any]] = {part: {} for part in _PARTS}
        for name, value in state.items():
            part, dot, rest = name.partition(".")
            if dot:
                parts[part][rest] = value
        return cls(next_round=int(state["next_round"]), params=state["params"], **parts)

    def move(self, accelerator: torch.device) -> None:
        """Move every tensor to the accelerator."""
        self.params = self.params.to(accelerator)
        for part in _PARTS:
            held = getattr(self, part)
            held.update({name: v.to(accelerator) for name, v in held.items() if isinstance(v, Tensor)})


_PARTS = ("optimiser_state", "strategy_state", "analytics")


@dataclass(frozen=True)
class RoundResult:
    """What a round leaves behind: a row, its clients' rows, and a snapshot when one was due."""

    row: RoundRow
    clients: ClientRows
    snapshot: SimilaritySnapshot | None


def begin(strategy: Strategy, task: Task) -> Learner:
    """Make the learner before round 0."""
    federation = task.federation
    strategy.check(federation)
    analytics: dict[str, Any] = {"last_stand_in": np.full(federation.clients, -1)}
    if strategy.compares and task.telemetry.similarity_every and federation.clients <= CLUSTERS_UP_TO:
        analytics["distance"] = np.zeros((federation.clients, federation.clients))
        analytics["distances"] = np.zeros((federation.clients, federation.clients), dtype=np.int32)
    return Learner(
        next_round=0,
        params=task.trainer.initial(),
        optimiser_state=task.training.server_optimiser.start(
            federation.parameters, federation.accelerator, federation.dtype
        ),
        strategy_state=strategy.start(federation),
        analytics=analytics,
    )


def learn(
    strategy: Strategy, task: Task, trace: Iterable[TraceRound], learner: Learner
) -> Iterator[RoundResult]:
    """Take a learner through the rounds it has not seen; it may be checkpointed between results."""
    federation = task.federation
    learner.move(federation.accelerator)
    comparer = UpdateComparer(strategy.update_score, federation) if strategy.compares else None
    for trace_round in trace:
        if trace_round.round < learner.next_round:
            continue
        if trace_round.clients != federation.clients:
            raise TraceError(
                f"round {trace_round.round} of the trace",
                f"has {trace_round.clients} clients where the data are divided among {federation.clients}",
                "use a trace made for as many clients",
            )
        current = Round(strategy, task, comparer, trace_round, learner)
        yield _conclude(strategy, task, learner, current.run(), current.watch)


def _conclude(
    strategy: Strategy, task: Task, learner: Learner, outcome: RoundOutcome, watch: Stopwatch
) -> RoundResult:
    """Let strategy, server and analytics take in a round, and record it."""
    round_index, true_cluster = outcome.cohort.round_index, task.federation.true_cluster
    # In a round without active clients nothing moves, and the strategy has nothing to report.
    figures, report = FriendFigures(), dict[str, float]()
    with watch.on("blend"):
        if outcome.blend is not None:
            scores = None if outcome.pair_scores is None else outcome.pair_scores.scores
            feedback = Feedback(scores, outcome.losses, outcome.figures, outcome.learning_rate)
            learner.strategy_state = strategy.after_round(learner.strategy_state, outcome.cohort, feedback)
            report = strategy.report(learner.strategy_state)
            last = learner.analytics["last_stand_in"]
            figures = friend_figures(strategy, outcome.cohort, outcome.blend, true_cluster, last)
            _follow(learner.analytics, outcome)
            learner.params, learner.optimiser_state = task.training.server_optimiser.step(
                learner.params, outcome.update, learner.optimiser_state, task.training.global_learning_rate
            )
    evaluation: Evaluation | None = None
    if task.due(task.telemetry.evaluate_every, round_index):
        with watch.on("evaluate"):
            evaluation = task.trainer.evaluate(learner.params)
    snapshot: SimilaritySnapshot | None = None
    with watch.on("analytics"):
        if evaluation is not None and true_cluster is not None and len(true_cluster) <= CLUSTERS_UP_TO:
            agreement = cluster_agreement(strategy.friendship(learner.strategy_state), true_cluster)
            figures = replace(figures, cluster_agreement=agreement)
        if task.due(task.telemetry.similarity_every, round_index):
            friendship = strategy.friendship(learner.strategy_state)
            snapshot = snapshot_of(round_index, friendship, learner.analytics.get("distance"))
    learner.next_round = round_index + 1
    return RoundResult(
        round_row(outcome, evaluation, figures, report, watch),
        client_rows(outcome, evaluation, true_cluster),
        snapshot,
    )


def _follow(analytics: dict[str, Any], outcome: RoundOutcome) -> None:
    """Note each missing client's stand-in, and add to the mean distance of each pair compared."""
    cohort, blend, pairs = outcome.cohort, outcome.blend, outcome.pair_scores
    if blend is not None:
        single = blend.stand_in >= 0
        analytics["last_stand_in"][cohort.missing[single]] = blend.stand_in[single]
    if pairs is not None and "distance" in analytics:
        known = np.isfinite(pairs.distances)
        where = tuple(cohort.active[places] for places in np.nonzero(known))
        analytics["distances"][where] += 1
        mean = analytics["distance"]
        mean[where] += (pairs.distances[known] - mean[where]) / analytics["distances"][where]
