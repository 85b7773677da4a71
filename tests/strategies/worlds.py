"""Tiny worlds for strategy tests: a trainer on quadratics, and traces written by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from fdsim.learning.config.training import Training
from fdsim.learning.engine import Task
from fdsim.rng import stream
from fdsim.strategies.base import Federation
from fdsim.telemetry.config import Telemetry
from fdsim.trace import TraceRound, plain_round


@dataclass(frozen=True)
class FakeChunk:
    clients: np.ndarray
    updates: torch.Tensor
    losses: torch.Tensor


@dataclass(frozen=True)
class FakeEvaluation:
    accuracy: float
    loss: float
    per_client: np.ndarray

    def of_clients(self, clients: np.ndarray) -> np.ndarray:
        return self.per_client[clients]


class QuadraticTrainer:
    """Client k pulls the parameters towards its own target: d_k = η·(target_k − w + noise)."""

    def __init__(self, targets: np.ndarray, *, noise: float = 0.1, chunk: int = 7, seed: int = 0) -> None:
        self.targets, self.noise, self.chunk, self.seed = targets, noise, chunk, seed
        self.names = np.arange(len(targets))
        self.trained: list[tuple[int, tuple[int, ...]]] = []

    def initial(self) -> torch.Tensor:
        return torch.zeros(self.targets.shape[1], dtype=torch.float64)

    def _update(self, start: torch.Tensor, client: int, round_index: int) -> np.ndarray:
        noise = stream(self.seed, "noise", round_index, int(self.names[client])).normal(
            size=self.targets.shape[1]
        )
        return 0.1 * (self.targets[client] - start.numpy() + self.noise * noise)

    def train(
        self, start: torch.Tensor, clients: np.ndarray, round_index: int, work_frac: np.ndarray | None = None
    ) -> Iterator[FakeChunk]:
        self.trained.append((round_index, tuple(int(c) for c in clients)))
        work = np.ones(len(clients)) if work_frac is None else work_frac
        for first in range(0, len(clients), self.chunk):
            part = slice(first, first + self.chunk)
            updates = np.stack([self._update(start, int(c), round_index) for c in clients[part]])
            updates = torch.from_numpy(updates * work[part, None])
            yield FakeChunk(clients[part], updates, updates.square().sum(dim=1))

    def evaluate(self, params: torch.Tensor) -> FakeEvaluation:
        loss = float(((params.numpy() - self.targets) ** 2).mean())
        each = 1.0 / (1.0 + ((params.numpy() - self.targets) ** 2).mean(axis=1))
        return FakeEvaluation(accuracy=1.0 / (1.0 + loss), loss=loss, per_client=each)


def clustered_targets(
    clients: int, clusters: int, parameters: int, *, spread: float = 0.1, seed: int = 0
) -> np.ndarray:
    """Targets [K, P] of clients in clusters of equal size (client k belongs to cluster k mod clusters)."""
    rng = stream(seed, "targets")
    centres = rng.normal(size=(clusters, parameters))
    return centres[np.arange(clients) % clusters] + spread * rng.normal(size=(clients, parameters))


def task_on(
    trainer: QuadraticTrainer, *, rounds: int, clusters: int | None = None, **choices: object
) -> Task:
    clients, parameters = trainer.targets.shape
    weight = choices.pop("client_weight", np.full(clients, 1.0 / clients))
    federation = Federation(
        clients=clients,
        rounds=rounds,
        parameters=parameters,
        seed=trainer.seed,
        client_weight=weight,
        true_cluster=None if clusters is None else np.arange(clients) % clusters,
        accelerator=torch.device("cpu"),
        dtype=torch.float64,
        direct=bool(choices.pop("direct", False)),
    )
    telemetry = Telemetry.model_validate({"similarity_every": 0, **choices})
    return Task(trainer, federation, Training(local_steps=1), telemetry)


def random_trace(clients: int, rounds: int, *, alpha: float = 0.5, seed: int = 0) -> list[TraceRound]:
    """Everybody in round 0, then each client with probability 1 − alpha."""
    rng = stream(seed, "trace")
    return [plain_round(r, (rng.random(clients) >= alpha) | (r == 0), 60.0) for r in range(rounds)]


def scripted_trace(*active: set[int], clients: int) -> list[TraceRound]:
    return [plain_round(r, np.isin(np.arange(clients), list(who)), 60.0) for r, who in enumerate(active)]
