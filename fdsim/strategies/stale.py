"""Standing in with one's own past."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from fdsim.strategies.base import LEFT_OUT, STORED, Blend, Cohort, Federation, State, Strategy
from fdsim.strategies.stored_updates import blank_memory, check_memory, combined

if TYPE_CHECKING:
    import torch


class Stale(Strategy):
    """Represents a missing client by what it uploaded last; before that it is left out of the average.

    Keeps K×P numbers. `of = "update"` stores the last update; `of = "model"` stores the last local model w_k,
    so that the stand-in is w_k − w_t.
    """

    stores: ClassVar[bool] = True
    fallback: ClassVar[int | None] = LEFT_OUT

    of: Literal["update", "model"] = Field(
        "update", description="What is stored: the last update, or the last model."
    )
    max_memory_gb: float = Field(4.0, gt=0, description="The most memory the stored updates may take, GB.")

    def check(self, federation: Federation) -> None:
        check_memory(self.label, federation, self.max_memory_gb)

    def start(self, federation: Federation) -> State:
        return {"memory": blank_memory(federation), "known": np.zeros(federation.clients, dtype=bool)}

    def blend(self, state: State, cohort: Cohort) -> Blend:
        known = state["known"][cohort.missing]
        remembered = cohort.missing[known]
        total = cohort.client_weight[cohort.active].sum() + cohort.client_weight[remembered].sum()
        correction = None
        if len(remembered):
            factors = cohort.client_weight[remembered] / total
            correction = combined(state["memory"], remembered, factors)
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
        state["memory"][rows] = updates + cohort.params if self.of == "model" else updates
        state["known"][clients] = True

    def stored(self, state: State, cohort: Cohort, clients: np.ndarray) -> torch.Tensor:
        import torch

        rows: torch.Tensor = state["memory"][torch.as_tensor(clients, device=state["memory"].device)]
        return rows - cohort.params if self.of == "model" else rows
