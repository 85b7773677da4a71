"""The average over the active clients."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from fdsim.strategies.base import MEAN, Blend, Cohort, State, Strategy, renormalised


class Dropout(Strategy):
    """Averages the received updates: their mean represents each missing client."""

    accept_partial: bool = Field(
        False, description="Use the unfinished work of clients that the deadline cut off in training."
    )

    @property
    def takes_partial(self) -> bool:
        return self.accept_partial

    def blend(self, state: State, cohort: Cohort) -> Blend:
        missing = len(cohort.missing)
        return Blend(renormalised(cohort), np.full(missing, MEAN), np.full(missing, np.nan))
