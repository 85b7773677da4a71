"""Complexity reduction: candidate sets, so that pairs that cannot be friends are no longer compared.

Each client k keeps a candidate set C_k, at first everybody else. After each round every i whose score is Θ_t
or more below the best of C_k leaves it for good. A pair is compared while either side has the other as a
candidate.

    Θ_t = sqrt((2·ln(2·K²·T·B_max) − 2·ln p) / (β·t)) + δ_f

keeps the bound of the algorithm with probability 1 − p. K and T come from the run, p is a setting, and β,
B_max and δ_f are settings or estimated during the run. β·t is there because every pair has met that often
by round t, and half of Θ_t is how far the mean of so many scores may be off. Without a given β each pair's
own N takes the place of β·t: i goes once R[k, i] + ½Θ(N[k, i]) is no more than the largest R[k, j] − ½Θ(N[k,
j]) in C_k. That is the same where all pairs meet alike, and holds also where some meet rarely.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, PositiveFloat

from fdsim.catalogue import Table
from fdsim.strategies.base import State
from fdsim.strategies.similarity import decoded

#: B_max and δ_f are estimated from about this many scores: all rows of R up to 700 clients, then fewer.
_SAMPLED_SCORES = 500_000
#: Numbers of R in memory at once.
_BLOCK = 4_000_000


class Reduction(Table):
    """When a candidate is eliminated."""

    scale: PositiveFloat = Field(1.0, description="Factor on Θ_t; the paper also plots 0.5.")
    p: float = Field(0.1, gt=0, lt=1, description="Probability that the bound fails.")
    beta: Annotated[float, Field(gt=0, le=1)] | Literal["estimate"] = Field(
        "estimate",
        description="β, the smallest fraction of rounds in which a pair meets; estimated for each pair.",
    )
    b_max: Annotated[int, Field(ge=1)] | Literal["estimate"] = Field(
        "estimate",
        description="B_max, the most friends a client has; estimated from the largest gap in each row.",
    )
    delta_f: Annotated[float, Field(ge=0)] | Literal["estimate"] = Field(
        0.0,
        description="δ_f, the spread of the scores of a client's friends; estimated from the largest gap in each row.",
    )

    def theta(self, inputs: ThetaInputs, meetings: np.ndarray) -> np.ndarray:
        """Return scale·Θ_t for numbers of meetings β·t; infinite for none."""
        log_term = 2.0 * math.log(2.0 * inputs.clients**2 * inputs.rounds * inputs.b_max) - 2.0 * math.log(
            self.p
        )
        with np.errstate(divide="ignore"):
            root = np.sqrt(log_term / np.asarray(meetings, dtype=np.float64))
        return np.asarray(self.scale * (root + inputs.delta_f))


@dataclass(frozen=True)
class ThetaInputs:
    """What Θ_t depends on besides the meetings."""

    clients: int
    rounds: int
    b_max: int
    delta_f: float


def blank_candidates(clients: int) -> State:
    """Make the candidate sets [K, K] before any elimination."""
    everybody = np.ones((clients, clients), dtype=bool)
    np.fill_diagonal(everybody, False)
    return {"candidates": everybody, "theta": math.inf, "eliminated": 0}


def eliminate(state: State, reduction: Reduction, *, rounds: int, rounds_done: int) -> None:
    """Eliminate candidates whose score is too low after `rounds_done` of `rounds` rounds; changes `state`."""
    candidates, meetings = state["candidates"], state["N"]
    clients = len(candidates)
    b_max, delta_f = (
        _friends_above_gaps(state) if "estimate" in (reduction.b_max, reduction.delta_f) else (1, 0.0)
    )
    inputs = ThetaInputs(
        clients,
        rounds,
        b_max if reduction.b_max == "estimate" else reduction.b_max,
        delta_f if reduction.delta_f == "estimate" else reduction.delta_f,
    )
    given = None if reduction.beta == "estimate" else reduction.beta * rounds_done
    usual = meetings.sum(dtype=np.int64) / max(1, clients * (clients - 1)) if given is None else given
    state["theta"], state["eliminated"] = float(reduction.theta(inputs, np.array(usual))), 0
    most = meetings.max() if given is None else given
    if state["R"].dtype == np.uint16 and reduction.theta(inputs, np.array(most)) > 1.0:
        return  # scores in 0..1 cannot be so far apart
    for rows in _row_blocks(clients):
        known = candidates[rows] & (meetings[rows] > 0)
        scores = decoded(state["R"][rows])
        slack = 0.5 * reduction.theta(inputs, meetings[rows] if given is None else np.array(given))
        at_least = np.where(known, scores - slack, -np.inf).max(axis=1, keepdims=True)
        too_low = known & (scores + slack <= at_least)
        state["eliminated"] += int(too_low.sum())
        candidates[rows] &= ~too_low


def _row_blocks(clients: int) -> Iterator[slice]:
    step = max(1, _BLOCK // clients)
    for start in range(0, clients, step):
        yield slice(start, start + step)


def _friends_above_gaps(state: State) -> tuple[int, float]:
    """Estimate B_max and δ_f: a client's friends are those above the largest gap of its sorted scores."""
    rows = slice(0, max(16, _SAMPLED_SCORES // len(state["N"])))
    # Falling scores, rising negatives: NaN, for pairs never compared, sorts to the end either way.
    falling = np.sort(np.where(state["N"][rows] > 0, -decoded(state["R"][rows]), np.nan), axis=1)
    gaps = np.nan_to_num(np.diff(falling, axis=1), nan=-1.0)
    if not gaps.size or gaps.max() < 0:
        return 1, 0.0
    last = gaps.argmax(axis=1)
    scored = gaps.max(axis=1) >= 0
    spread = falling[np.arange(len(last)), last] - falling[:, 0]
    return int(last[scored].max()) + 1, float(spread[scored].max())
