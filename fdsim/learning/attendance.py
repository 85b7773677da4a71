"""Whose updates a strategy gets in a round of the trace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fdsim.strategies.base import Cohort, Setting, Strategy
from fdsim.trace import Cause, Phase, TraceRound


@dataclass(frozen=True)
class Attendance:
    """A round's cohort, and the clients in it whose work was cut short but taken all the same."""

    cohort: Cohort
    partial: np.ndarray
    work_frac: np.ndarray | None
    """[S] share of the local work that each arrived client has done; None when all of it."""


def attendance_of(
    strategy: Strategy, setting: Setting, trace_round: TraceRound, params: Tensor
) -> Attendance:
    """Works out whose updates a strategy gets in a round."""
    selected, arrived = trace_round.selected, trace_round.completed
    partial = np.empty(0, dtype=np.int64)
    work_frac = None
    if strategy.trains_missing:
        arrived = selected
    elif strategy.takes_partial:
        cut_off = (trace_round.cause == Cause.deadline) & (trace_round.phase == Phase.train)
        partial = np.flatnonzero(cut_off & (trace_round.progress > 0))
        if len(partial):
            arrived = np.union1d(arrived, partial)
            work_frac = np.where(np.isin(arrived, partial), trace_round.progress[arrived], 1.0)
    share = np.zeros(setting.clients)
    share[selected] = setting.share[selected]
    total = share.sum()
    cohort = Cohort(
        round_index=trace_round.round,
        arrived=arrived,
        missing=np.setdiff1d(selected, arrived),
        share=share / total if total > 0 else share,
        params=params,
    )
    return Attendance(cohort, partial, work_frac)
