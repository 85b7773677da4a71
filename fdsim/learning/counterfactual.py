"""What the missing clients would have sent: they are trained as well, to measure the substitution error.

Nothing here feeds back into the learning. The active clients are trained in the very same calls whether the
counterfactual is on or off, which keeps the learning bit-identical.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fdsim.learning.trainer import Chunk, Trainer
from fdsim.strategies.base import (
    LEFT_OUT,
    MEAN,
    STORED,
    STORED_ON_MEAN,
    ZERO,
    Blend,
    Cohort,
    Strategy,
    renormalised,
)


@dataclass(frozen=True)
class SubstitutionError:
    """How far a round's substitutes were from the true updates, in the paper's units."""

    aggregate: float
    """‖e_t‖²"""
    clients: np.ndarray
    """[M] the clients that were trained for this measurement alone."""
    squared: np.ndarray
    """[M] ‖Δ̃ − Δ‖²"""
    cosine: np.ndarray
    """[M] cosine of Δ̃ and Δ."""


class Counterfactual:
    """Follows one round and measures how far the substitutes were from the true updates."""

    def __init__(
        self, strategy: Strategy, state: dict[str, object], cohort: Cohort, blend: Blend | None
    ) -> None:
        self._cohort = cohort
        #: Clients whose true update is not known: the missing, and those whose work was cut short.
        self._clients = np.union1d(cohort.missing, cohort.partial)
        self._trained: list[np.ndarray] = []
        stand_in = np.full(len(cohort.missing), ZERO) if blend is None else blend.stand_in
        self._stand_in = dict(zip(cohort.missing.tolist(), stand_in.tolist(), strict=True))
        self._mean_weights = renormalised(cohort) if len(cohort.active) else np.empty(0)
        self._true_update = torch.zeros_like(cohort.params)
        self._mean = torch.zeros_like(cohort.params)
        self._wanted = {code for code in self._stand_in.values() if code >= 0} | set(cohort.partial.tolist())
        self._substitutes: dict[int, Tensor] = {}
        self._mixture = None if blend is None else blend.mixture
        self._mixed: Tensor | None = None
        if self._mixture is not None:
            self._mixed = (
                strategy.stored(state, cohort, cohort.missing)
                if strategy.stores
                else cohort.params.new_zeros(len(cohort.missing), len(cohort.params))
            )
            return
        stored = [c for c, code in self._stand_in.items() if code in (STORED, STORED_ON_MEAN)]
        if stored:
            # Asked for now: what is stored changes as updates stream by.
            rows = strategy.stored(state, cohort, np.array(stored))
            self._substitutes |= dict(zip(stored, rows, strict=True))

    def add(self, positions: np.ndarray, chunk: Chunk) -> None:
        """Take a chunk of received updates as it streams by."""
        clients, updates = chunk.clients, chunk.updates
        is_partial = np.isin(clients, self._cohort.partial)
        add_weighted_(
            self._true_update, np.where(is_partial, 0.0, self._cohort.client_weight[clients]), updates
        )
        add_weighted_(self._mean, self._mean_weights[positions], updates)
        if self._mixture is not None and self._mixed is not None:
            self._mixed.addmm_(torch.as_tensor(self._mixture[:, positions]).to(updates), updates)
        for place, client in enumerate(clients.tolist()):
            if client in self._wanted:
                # A copy: a view would keep the whole chunk alive.
                self._substitutes[client] = updates[place].clone()

    def _substitute(self, client: int, update: Tensor) -> Tensor:
        code = self._stand_in.get(client)
        if self._mixed is not None and code is not None and code != LEFT_OUT:
            return self._mixed[int(np.searchsorted(self._cohort.missing, client))]
        if code is None or code == STORED:  # None: its own unfinished work was taken
            return self._substitutes[client]
        if code >= 0:
            return self._substitutes[code]
        if code == STORED_ON_MEAN:
            return self._substitutes[client] + self._mean
        if code == MEAN:
            return self._mean
        if code == ZERO:
            return torch.zeros_like(update)
        return update  # left out: the average of the others represents it

    def measure(self, trainer: Trainer, update: Tensor, *, learning_rate: float) -> dict[str, Tensor]:
        """Train for the true updates, and compare the global `update` [P] and every substitute with them."""
        squared, cosine = [update.new_empty(0)], [update.new_empty(0)]
        clients, cohort = self._clients, self._cohort
        for chunk in trainer.train(cohort.params, clients, cohort.round_index) if len(clients) else ():
            add_weighted_(self._true_update, cohort.client_weight[chunk.clients], chunk.updates)
            substitutes = torch.stack([self._substitute(client, update) for client in chunk.clients.tolist()])
            squared.append((substitutes - chunk.updates).square().sum(dim=1))
            norms = torch.linalg.vector_norm(substitutes, dim=1) * torch.linalg.vector_norm(
                chunk.updates, dim=1
            )
            cosine.append((substitutes * chunk.updates).sum(dim=1) / norms)
            self._trained.append(chunk.clients)
        units = learning_rate**2
        return {
            "error": (update - self._true_update).square().sum().reshape(1) / units,
            "error_squared": torch.cat(squared) / units,
            "error_cosine": torch.cat(cosine),
        }

    def error(self, host: dict[str, np.ndarray]) -> SubstitutionError:
        """Return what `measure` found, once it is on the host."""
        return SubstitutionError(
            aggregate=float(host["error"][0]),
            clients=np.concatenate([np.empty(0, dtype=np.int64), *self._trained]),
            squared=host["error_squared"],
            cosine=host["error_cosine"],
        )


def add_weighted_(total: Tensor, weights: np.ndarray, updates: Tensor) -> None:
    """Add a weighted sum of updates [C, P] to a total [P], in place."""
    total.addmv_(updates.T, torch.as_tensor(weights, dtype=total.dtype, device=total.device))
