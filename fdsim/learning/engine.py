"""The round loop: one strategy learns on a trace, round by round.

The engine owns orchestration: it trains whoever arrives, streams their updates into the blend the strategy
asked for, compares updates on the accelerator, steps the server optimiser and writes down what happened.
Rounds are pulled from an iterator one at a time, so that a source of rounds may look at the learner before it
returns the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fdsim.errors import TraceError
from fdsim.learning.attendance import attendance_of
from fdsim.learning.friends import (
    CLUSTERS_UP_TO,
    FriendFigures,
    adjusted_rand_index,
    clusters_in,
    friend_figures,
)
from fdsim.learning.records import Account, client_rows, round_row, snapshot_of
from fdsim.learning.round import Played, Table, play
from fdsim.learning.similarity import UpdateComparer
from fdsim.learning.stopwatch import Stopwatch
from fdsim.learning.trainer import Evaluation, Trainer
from fdsim.strategies.base import Cohort, Federation, Received, State, Strategy
from fdsim.telemetry.schema import ClientRows, RoundRow, SimilaritySnapshot
from fdsim.trace import TraceRound

if TYPE_CHECKING:
    from fdsim.learning.server_optimisers import ServerOptimiser


@dataclass(frozen=True)
class Task:
    """What is the same for every strategy that learns on a trace."""

    trainer: Trainer
    federation: Federation
    optimiser: ServerOptimiser
    global_learning_rate: float
    evaluate_every: int = 1
    similarity_every: int = 0
    """Rounds between snapshots of R and N; 0 takes none, otherwise one is also taken after the last round."""
    counterfactual: bool = False
    convolutions: str = "torch"
    """Whose convolutions train: torch's or our own (direct); they differ in their last bits."""

    def due(self, every: int, round_index: int) -> bool:
        """Whether something done every so many rounds, and after the last one, is done now."""
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
        """Return a flat dict of tensors, arrays and numbers, as checkpoints want it."""
        state: dict[str, Any] = {"next_round": self.next_round, "params": self.params}
        for part in _PARTS:
            state |= {f"{part}.{name}": value for name, value in getattr(self, part).items()}
        return state

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Learner:
        """Make the learner that `as_state` described."""
        parts: dict[str, dict[str, Any]] = {part: {} for part in _PARTS}
        for name, value in state.items():
            part, dot, rest = name.partition(".")
            if dot:
                parts[part][rest] = value
        return cls(next_round=int(state["next_round"]), params=state["params"], **parts)

    def move(self, accelerator: torch.device) -> None:
        """Bring every tensor to the accelerator."""
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
    if strategy.compares and task.similarity_every and federation.clients <= CLUSTERS_UP_TO:
        analytics["distance"] = np.zeros((federation.clients, federation.clients))
        analytics["distances"] = np.zeros((federation.clients, federation.clients), dtype=np.int32)
    return Learner(
        next_round=0,
        params=task.trainer.initial(),
        optimiser_state=task.optimiser.start(federation.parameters, federation.accelerator, federation.dtype),
        strategy_state=strategy.start(federation),
        analytics=analytics,
    )


def learn(
    strategy: Strategy, task: Task, trace: Iterable[TraceRound], learner: Learner
) -> Iterator[RoundResult]:
    """Let a learner live through the rounds it has not seen; it may be checkpointed between results."""
    learner.move(task.federation.accelerator)
    table = Table(
        strategy, task, UpdateComparer(strategy.comparison, task.federation) if strategy.compares else None
    )
    for trace_round in trace:
        if trace_round.round < learner.next_round:
            continue
        if trace_round.clients != task.federation.clients:
            raise TraceError(
                f"round {trace_round.round} of the trace",
                f"has {trace_round.clients} clients where the data are divided among {task.federation.clients}",
                "use a trace made for as many clients",
            )
        yield _one_round(table, trace_round, learner)


def _one_round(table: Table, trace_round: TraceRound, learner: Learner) -> RoundResult:
    watch = Stopwatch()
    strategy, task = table.strategy, table.task
    round_index = trace_round.round
    attendance = attendance_of(strategy, task.federation, trace_round, learner.params)
    played = play(table, learner.strategy_state, attendance, watch)
    with watch.on("blend"):
        figures = _learn_from(strategy, task, attendance.cohort, played, learner)
        if played.update is not None:
            learner.params, learner.optimiser_state = task.optimiser.step(
                learner.params, played.update, learner.optimiser_state, task.global_learning_rate
            )
    evaluation: Evaluation | None = None
    if task.due(task.evaluate_every, round_index):
        with watch.on("evaluate"):
            evaluation = task.trainer.evaluate(learner.params)
    with watch.on("analytics"):
        agreement = _cluster_agreement(strategy, task, learner) if evaluation is not None else None
        snapshot = _snapshot(strategy, task, learner, round_index)
    learner.next_round = round_index + 1
    # In a round that nobody came to the strategy has not moved, and has nothing to report.
    report = {} if played.blend is None else strategy.report(learner.strategy_state)
    account = Account(
        trace_round,
        attendance,
        played,
        figures,
        report,
        evaluation,
        agreement,
    )
    return RoundResult(
        round_row(account, watch), client_rows(account, task.federation.true_cluster), snapshot
    )


def _learn_from(
    strategy: Strategy, task: Task, cohort: Cohort, played: Played, learner: Learner
) -> FriendFigures:
    """Let strategy and analytics take in a round in which somebody arrived."""
    if played.blend is None:
        return FriendFigures()
    scores = None if played.compared is None else played.compared.scores
    learner.strategy_state = strategy.after_round(
        learner.strategy_state, cohort, Received(scores, played.losses)
    )
    last = learner.analytics["last_stand_in"]
    figures = friend_figures(strategy, cohort, played.blend, task.federation.true_cluster, last)
    single = played.blend.stand_in >= 0
    last[cohort.missing[single]] = played.blend.stand_in[single]
    if played.compared is not None and "distance" in learner.analytics:
        known = np.isfinite(played.compared.distances)
        first, second = (cohort.active[places] for places in np.nonzero(known))
        learner.analytics["distances"][first, second] += 1
        mean = learner.analytics["distance"]
        mean[first, second] += (played.compared.distances[known] - mean[first, second]) / learner.analytics[
            "distances"
        ][first, second]
    return figures


def _cluster_agreement(strategy: Strategy, task: Task, learner: Learner) -> float | None:
    truth = task.federation.true_cluster
    if truth is None or task.federation.clients > CLUSTERS_UP_TO:
        return None
    friendship = strategy.friendship(learner.strategy_state)
    if friendship is None:
        return None
    return adjusted_rand_index(clusters_in(*friendship, count=len(np.unique(truth))), truth)


def _snapshot(
    strategy: Strategy, task: Task, learner: Learner, round_index: int
) -> SimilaritySnapshot | None:
    if not task.due(task.similarity_every, round_index):
        return None
    friendship = strategy.friendship(learner.strategy_state)
    if friendship is None:
        return None
    return snapshot_of(round_index, friendship, learner.analytics.get("distance"))
