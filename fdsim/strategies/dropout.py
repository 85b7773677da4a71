"""Averaging over whoever is there."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from fdsim.strategies.base import MEAN, Blend, Cohort, State, Strategy, renormalised


class Dropout(Strategy):
    """Averages the updates that arrived: each missing client is represented by their mean."""

    accept_partial: bool = Field(
        False, description="Take the work of clients that the deadline cut off in training."
    )

    @property
    def takes_partial(self) -> bool:
        return self.accept_partial

    def blend(self, state: State, cohort: Cohort) -> Blend:
        missing = len(cohort.missing)
        return Blend(renormalised(cohort), np.full(missing, MEAN), np.full(missing, np.nan))
