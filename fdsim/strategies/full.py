"""The upper bound: nobody is missing."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fdsim.strategies.base import Blend, Cohort, State, Strategy, renormalised


class Full(Strategy):
    """Uses every selected client's true update, as if nobody had dropped out: the upper bound."""

    trains_missing: ClassVar[bool] = True

    def blend(self, state: State, cohort: Cohort) -> Blend:
        # The engine passes the missing on as active, so nobody needs a stand-in.
        return Blend(renormalised(cohort), np.empty(0, dtype=np.int64), np.empty(0))
