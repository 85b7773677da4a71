"""Each missing client's own last upload stands in for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from fdsim.strategies.base import LEFT_OUT, STORED, Blend, Cohort, Federation, State, Strategy
from fdsim.strategies.stored_updates import blank_store, check_store_size, combined

if TYPE_CHECKING:
    import torch


class Stale(Strategy):
    """Represents a missing client by its last upload; a client that has never uploaded is left out of the average.

    Stores K×P numbers. `of = "update"` stores the last update; `of = "model"` stores the last local model w_k,
    so that the stand-in is w_k − w_t.
    """

    stores: ClassVar[bool] = True
    fallback: ClassVar[int | None] = LEFT_OUT

    of: Literal["update", "model"] = Field(
        "update", description="What is stored: the last update, or the last model."
    )
    max_memory_gb: float = Field(4.0, gt=0, description="Limit on the memory of the stored updates, GB.")

    def check(self, federation: Federation) -> None:
        check_store_size(self.label, federation, self.max_memory_gb)

    def start(self, federation: Federation) -> State:
        return {"stored": blank_store(federation), "known": np.zeros(federation.clients, dtype=bool)}

    def blend(self, state: State, cohort: Cohort) -> Blend:
        known = state["known"][cohort.missing]
        stored_before = cohort.missing[known]
        total = cohort.client_weight[cohort.active].sum() + cohort.client_weight[stored_before].sum()
        correction = None
        if len(stored_before):
            factors = cohort.client_weight[stored_before] / total
            correction = combined(state["stored"], stored_before, factors)
            if self.of == "model":
                correction = correction - float(factors.sum()) * cohort.params
        return Blend(
            weights=cohort.client_weight[cohort.active] / total,
            stand_in=np.where(known, STORED, LEFT_OUT),
            similarity=np.full(len(known), np.nan),
            correction=correction,
        )

    def store(self, state: State, cohort: Cohort, clients: np.ndarray, updates: torch.Tensor) -> None:
        import torch

        rows = torch.as_tensor(clients, device=updates.device)
        state["stored"][rows] = updates + cohort.params if self.of == "model" else updates
        state["known"][clients] = True

    def stored(self, state: State, cohort: Cohort, clients: np.ndarray) -> torch.Tensor:
        import torch

        rows: torch.Tensor = state["stored"][torch.as_tensor(clients, device=state["stored"].device)]
        return rows - cohort.params if self.of == "model" else rows
