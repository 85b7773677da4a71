"""What the missing clients would have sent: they are trained off the books to measure the substitution error.

Nothing here feeds back into the learning. The active clients are trained in the very same calls whether the
counterfactual is on or off, which keeps the learning bit-identical.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fdsim.learning.trainer import Chunk
from fdsim.strategies.base import MEAN, STORED, STORED_ON_MEAN, ZERO, Blend, Cohort, Strategy, renormalised


@dataclass(frozen=True)
class SubstitutionError:
    """‖e_t‖² [1], and ‖Δ̃ − Δ‖² and cosine of each client trained off the books, in the paper's units."""

    clients: np.ndarray
    aggregate: Tensor
    squared: Tensor
    cosine: Tensor


class Counterfactual:
    """Follows one round and measures how far the substitutes were from the truth."""

    def __init__(
        self,
        strategy: Strategy,
        state: dict[str, object],
        cohort: Cohort,
        blend: Blend | None,
        partial: np.ndarray,
    ) -> None:
        self._cohort = cohort
        #: Clients whose true update nobody has yet: the missing, and those whose work was cut short.
        self.clients = np.union1d(cohort.missing, partial)
        self._partial = partial
        zero = np.full(len(cohort.missing), ZERO)
        self._rule = dict(
            zip(cohort.missing.tolist(), (zero if blend is None else blend.stand_in).tolist(), strict=True)
        )
        self._mean_weights = renormalised(cohort) if len(cohort.active) else np.empty(0)
        self._truth = torch.zeros_like(cohort.params)
        self._mean = torch.zeros_like(cohort.params)
        self._wanted = {rule for rule in self._rule.values() if rule >= 0} | set(partial.tolist())
        self._seen: dict[int, Tensor] = {}
        remembered = [c for c, rule in self._rule.items() if rule in (STORED, STORED_ON_MEAN)]
        if remembered:
            # Asked for now: what is stored changes as updates stream by.
            rows = strategy.stored(state, cohort, np.array(remembered))
            self._seen |= dict(zip(remembered, rows, strict=True))

    def arrive(self, positions: np.ndarray, clients: np.ndarray, updates: Tensor) -> None:
        """Take a chunk of received updates as it streams by."""
        true_share = np.where(np.isin(clients, self._partial), 0.0, self._cohort.client_weight[clients])
        add_weighted_(self._truth, true_share, updates)
        add_weighted_(self._mean, self._mean_weights[positions], updates)
        for place, client in enumerate(clients.tolist()):
            if client in self._wanted:
                # A copy: a view would keep the whole chunk alive.
                self._seen[client] = updates[place].clone()

    def _substitute(self, client: int, update: Tensor) -> Tensor:
        rule = self._rule.get(client)
        if rule is None:  # its own unfinished work was taken
            return self._seen[client]
        if rule >= 0:
            return self._seen[rule]
        if rule == STORED:
            return self._seen[client]
        if rule == STORED_ON_MEAN:
            return self._seen[client] + self._mean
        if rule == MEAN:
            return self._mean
        if rule == ZERO:
            return torch.zeros_like(update)
        return update  # left out of an average: the average speaks for it

    def measure(self, chunks: Iterable[Chunk], update: Tensor, *, learning_rate: float) -> SubstitutionError:
        """Compare the global `update` [P] and every substitute with the truth, which `chunks` bring."""
        clients: list[np.ndarray] = []
        squared: list[Tensor] = []
        cosine: list[Tensor] = []
        for chunk in chunks:
            add_weighted_(self._truth, self._cohort.client_weight[chunk.clients], chunk.updates)
            substitutes = torch.stack([self._substitute(client, update) for client in chunk.clients.tolist()])
            squared.append((substitutes - chunk.updates).square().sum(dim=1))
            norms = torch.linalg.vector_norm(substitutes, dim=1) * torch.linalg.vector_norm(
                chunk.updates, dim=1
            )
            cosine.append((substitutes * chunk.updates).sum(dim=1) / norms)
            clients.append(chunk.clients)
        error = (update - self._truth).square().sum()
        units = learning_rate**2
        none = update.new_empty(0)
        return SubstitutionError(
            clients=np.concatenate(clients) if clients else np.empty(0, dtype=np.int64),
            aggregate=error.reshape(1) / units,
            squared=torch.cat(squared) / units if squared else none,
            cosine=torch.cat(cosine) if cosine else none,
        )


def add_weighted_(total: Tensor, weights: np.ndarray, updates: Tensor) -> None:
    """Add a weighted sum of updates [C, P] to a total [P], in place."""
    total.addmv_(updates.T, torch.as_tensor(weights, dtype=total.dtype, device=total.device))
