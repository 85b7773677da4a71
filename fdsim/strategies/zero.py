"""Missing updates count as zero."""

from __future__ import annotations

import numpy as np

from fdsim.strategies.base import ZERO, Blend, Cohort, State, Strategy


class Zero(Strategy):
    """Counts a missing client's update as zero."""

    def blend(self, state: State, cohort: Cohort) -> Blend:
        missing = len(cohort.missing)
        return Blend(cohort.client_weight[cohort.active], np.full(missing, ZERO), np.full(missing, np.nan))
