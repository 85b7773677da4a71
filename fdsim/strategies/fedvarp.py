"""Server-side variance reduction with stored updates (FedVARP; Jhunjhunwala et al. 2022)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from fdsim.strategies.base import STORED_ON_MEAN, Blend, Cohort, Federation, State, Strategy, renormalised
from fdsim.strategies.stored_updates import blank_store, check_store_size, combined

if TYPE_CHECKING:
    import torch


class FedVarp(Strategy):
    """Corrects the mean of the received updates by how far their stored predecessors are from all clients'.

    With y_k the last update of k (zero before its first): Δ = mean over S of (Δᵢ − yᵢ) + mean over all of y.
    A missing client is thus represented by y_k + mean over S of (Δᵢ − yᵢ). Stores K×P numbers.

    SCAFFOLD is not offered: its control variates change every local step of the clients, which a rule for
    blending finished updates cannot do; this is its server-side counterpart.
    """

    stores: ClassVar[bool] = True

    over: Literal["everyone", "cohort"] = Field(
        "everyone",
        description="Whose stored updates are averaged: all clients (as published), or those selected.",
    )
    max_memory_gb: float = Field(4.0, gt=0, description="Limit on the memory of the stored updates, GB.")

    def check(self, federation: Federation) -> None:
        check_store_size(self.label, federation, self.max_memory_gb)

    def start(self, federation: Federation) -> State:
        return {
            "stored": blank_store(federation),
            "known": np.zeros(federation.clients, dtype=bool),
            "client_weight": np.array(federation.client_weight, dtype=np.float64),
        }

    def blend(self, state: State, cohort: Cohort) -> Blend:
        weights = renormalised(cohort)
        # One set of coefficients for both sums, so that they cancel exactly when nobody is missing.
        factors = (state["client_weight"] if self.over == "everyone" else cohort.client_weight).copy()
        factors[cohort.active] -= weights
        known = np.flatnonzero(state["known"] & (factors != 0.0))
        missing = len(cohort.missing)
        return Blend(
            weights=weights,
            stand_in=np.full(missing, STORED_ON_MEAN),
            similarity=np.full(missing, np.nan),
            correction=combined(state["stored"], known, factors[known]) if len(known) else None,
        )

    def store(self, state: State, cohort: Cohort, clients: np.ndarray, updates: torch.Tensor) -> None:
        import torch

        state["stored"][torch.as_tensor(clients, device=updates.device)] = updates
        state["known"][clients] = True

    def stored(self, state: State, cohort: Cohort, clients: np.ndarray) -> torch.Tensor:
        import torch

        rows: torch.Tensor = state["stored"]
        mean = combined(rows, cohort.active, renormalised(cohort))
        return rows[torch.as_tensor(clients, device=rows.device)] - mean
