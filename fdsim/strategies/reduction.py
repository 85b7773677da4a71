"""Complexity reduction: candidate sets, so that hopeless pairs are no longer compared.

Each client k keeps a candidate set C_k, at first everybody else. After each round every i whose score is Θ_t
or more below the best of C_k leaves it for good. A pair is compared while either side has the other as a
candidate.

    Θ_t = sqrt((2·ln(2·K²·T·B_max) − 2·ln p) / (β·t)) + δ_f

keeps the bound of the algorithm with probability 1 − p. K and T come from the run, p is a setting, and β,
B_max and δ_f are settings or estimated as the run goes on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, PositiveFloat

from fdsim.catalogue import Table
from fdsim.strategies.base import State
from fdsim.strategies.similarity import decoded

#: δ_f is estimated from at most this many clients' rows of R.
_ROWS_LOOKED_AT = 256
#: Numbers of R in memory at once.
_BLOCK = 4_000_000


class Reduction(Table):
    """When a candidate is given up."""

    scale: PositiveFloat = Field(1.0, description="Factor on Θ_t; the paper also plots 0.5.")
    p: float = Field(0.05, gt=0, lt=1, description="Probability with which the bound may fail.")
    beta: Annotated[float, Field(gt=0, le=1)] | Literal["estimate"] = Field(
        "estimate",
        description="β, the least share of rounds in which a pair meets; estimated: of pairs still compared.",
    )
    b_max: Annotated[int, Field(ge=1)] | Literal["estimate"] = Field(
        "estimate", description="B_max, the most friends of a client; estimated: the largest candidate set."
    )
    delta_f: Annotated[float, Field(ge=0)] | Literal["estimate"] = Field(
        0.0,
        description="δ_f, the spread of a client's friends' scores; estimated: above each row's largest gap.",
    )

    def theta(self, clients: int, rounds: int, *, meetings: float, b_max: int, delta_f: float) -> float:
        """Answers with scale·Θ_t, where `meetings` is β·t; infinite before every pair has met."""
        if meetings <= 0:
            return math.inf
        surprise = 2.0 * math.log(2.0 * clients**2 * rounds * b_max) - 2.0 * math.log(self.p)
        return self.scale * (math.sqrt(surprise / meetings) + delta_f)


def blank_candidates(clients: int) -> State:
    """Makes the candidate sets [K, K] before anybody was given up."""
    everybody = np.ones((clients, clients), dtype=bool)
    np.fill_diagonal(everybody, False)
    return {"candidates": everybody, "theta": math.inf, "eliminated": 0}


def eliminate(state: State, reduction: Reduction, *, rounds: int, rounds_done: int) -> None:
    """Lets candidates go whose score is hopeless after `rounds_done` of `rounds` rounds; changes `state`."""
    candidates: np.ndarray = state["candidates"]
    clients = len(candidates)
    beta_t = _least_meetings(state) if reduction.beta == "estimate" else reduction.beta * rounds_done
    theta = math.inf
    if beta_t > 0:
        theta = reduction.theta(
            clients,
            rounds,
            meetings=beta_t,
            b_max=int(candidates.sum(axis=1).max()) if reduction.b_max == "estimate" else reduction.b_max,
            delta_f=_friend_spread(state) if reduction.delta_f == "estimate" else reduction.delta_f,
        )
    state["theta"], state["eliminated"] = theta, 0
    if math.isinf(theta) or (state["R"].dtype == np.uint16 and theta > 1.0):
        return
    for rows in _row_blocks(clients):
        known = candidates[rows] & (state["N"][rows] > 0)
        scores = np.where(known, decoded(state["R"][rows]), -np.inf)
        best = scores.max(axis=1, keepdims=True)
        hopeless = known & (scores <= best - theta)
        state["eliminated"] += int(hopeless.sum())
        candidates[rows] &= ~hopeless


def _row_blocks(clients: int) -> Iterator[slice]:
    step = max(1, _BLOCK // clients)
    for start in range(0, clients, step):
        yield slice(start, start + step)


def _least_meetings(state: State) -> int:
    """Answers with the fewest comparisons of any pair still compared: β·t as the run has it so far."""
    candidates, meetings = state["candidates"], state["N"]
    least = np.iinfo(np.int32).max
    for rows in _row_blocks(len(candidates)):
        live = candidates[rows] | candidates[:, rows].T
        least = min(least, int(meetings[rows][live].min(initial=least)))
        if least == 0:
            return 0
    return least


def _friend_spread(state: State) -> float:
    """Answers with the widest range of scores above the largest gap of a client's sorted scores."""
    widest = 0.0
    for client in range(min(len(state["N"]), _ROWS_LOOKED_AT)):
        scores = np.sort(decoded(state["R"][client][state["N"][client] > 0]))[::-1]
        if len(scores) > 1:
            friends = int(np.argmax(scores[:-1] - scores[1:]))
            widest = max(widest, float(scores[0] - scores[friends]))
    return widest
