"""Whose updates a strategy gets in a round of the trace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fdsim.strategies.base import Cohort, Federation, Strategy
from fdsim.trace import Cause, Phase, TraceRound


@dataclass(frozen=True)
class Attendance:
    """A round's cohort, and the clients in it whose work was cut short but taken all the same."""

    cohort: Cohort
    partial: np.ndarray
    work_frac: np.ndarray | None
    """[S] share of the local work that each active client has done; None when all of it."""


def attendance_of(
    strategy: Strategy, federation: Federation, trace_round: TraceRound, params: Tensor
) -> Attendance:
    """Work out whose updates a strategy gets in a round."""
    selected, active = trace_round.selected, trace_round.completed
    partial = np.empty(0, dtype=np.int64)
    work_frac = None
    if strategy.trains_missing:
        active = selected
    elif strategy.takes_partial:
        cut_off = (trace_round.cause == Cause.deadline) & (trace_round.phase == Phase.train)
        partial = np.flatnonzero(cut_off & (trace_round.progress > 0))
        if len(partial):
            active = np.union1d(active, partial)
            work_frac = np.where(np.isin(active, partial), trace_round.progress[active], 1.0)
    weight = np.zeros(federation.clients)
    weight[selected] = federation.client_weight[selected]
    total = weight.sum()
    cohort = Cohort(
        round_index=trace_round.round,
        active=active,
        missing=np.setdiff1d(selected, active),
        client_weight=weight / total if total > 0 else weight,
        params=params,
    )
    return Attendance(cohort, partial, work_frac)
