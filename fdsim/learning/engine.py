"""The round loop: one strategy learns on a trace, round by round.

A round (round.py) trains the active clients and blends their updates; then the strategy takes in what the round has
shown, the server optimiser steps, and the round is recorded. Rounds are pulled from an iterator one at a time, so that
a source of rounds may look at the learner before it returns the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fdsim.errors import TraceError
from fdsim.learning.blend_check import check_state
from fdsim.learning.friends import CLUSTERS_UP_TO
from fdsim.learning.round import Round
from fdsim.learning.similarity import UpdateComparer
from fdsim.learning.trainer import Trainer
from fdsim.strategies.base import Federation, State, Strategy
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

    @property
    def convolutions(self) -> str:
        """Whose convolutions train, and who computes on updates: torch, or our own kernels (direct)."""
        return "direct" if self.federation.direct else "torch"

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
        strategy_state=check_state(strategy, "start", strategy.start(federation)),
        analytics=analytics,
    )


def learn(strategy: Strategy, task: Task, trace: Iterable[TraceRound], learner: Learner) -> Iterator[Round]:
    """Take a learner through the rounds it has not seen; it may be checkpointed between them.

    A round is yielded once it is over: its row, its clients' rows, and a snapshot where one was due.
    """
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
        current.train()
        current.settle()
        current.conclude(learner)
        yield current
