"""How wrong a stand-in would be, as far as the server can tell from the updates it has seen.

Errors are squared distances ‖Δ̃ − Δ‖² in the paper's units.
"""

from __future__ import annotations

import numpy as np

from fdsim.strategies.base import State

#: Ages are pooled in 1, 2, 3–4, 5–8, … rounds: class n ends at 2ⁿ.
AGE_CLASSES = 24
#: A client's own returns count as much as everybody's after this many of them.
TRUST_AFTER = 5.0


def age_class(age: np.ndarray) -> np.ndarray:
    """Return the class of each age in rounds: 1 → 0, 2 → 1, 3–4 → 2, 5–8 → 3, …"""
    # frexp is exact where a logarithm may round the wrong way at powers of two.
    return np.asarray(np.minimum(np.frexp(np.maximum(age, 1) - 0.5)[1], AGE_CLASSES - 1))


def blank_returns(clients: int) -> State:
    """Make the record of returns before anybody has come back."""
    return {
        "return_error": np.zeros(AGE_CLASSES),
        "returns": np.zeros(AGE_CLASSES),
        "own_ratio": np.zeros(clients, dtype=np.float32),
        "own_returns": np.zeros(clients, dtype=np.float32),
        "came_true": np.zeros(2),
    }


def enter_returns(
    state: State, clients: np.ndarray, age: np.ndarray, error: np.ndarray, *, fading: float
) -> None:
    """Note the error [n] of what was remembered of clients, `age` [n] rounds old, now that they are back."""
    foreseen = memory_error(state, clients, age)
    if np.isfinite(foreseen).all():
        state["came_true"] *= 1 - fading
        state["came_true"] += (error.sum(), foreseen.sum())
    expected = _pooled(state, age)
    known = np.isfinite(expected) & (expected > 0)
    who = clients[known]
    for kept, news in (("own_ratio", error[known] / expected[known]), ("own_returns", 1.0)):
        state[kept][who] = (1 - fading) * state[kept][who] + news
    for kept, each in (("return_error", error), ("returns", np.ones(len(age)))):
        state[kept] *= 1 - fading
        np.add.at(state[kept], age_class(age), each)


def memory_error(state: State, clients: np.ndarray, age: np.ndarray) -> np.ndarray:
    """Return the error expected of what is remembered of clients; NaN before anybody has come back.

    It is the mean over all returns after as many rounds, or the nearest age class that has any, times the
    client's own ratio of error to that mean, which starts at 1 and is trusted the more the more often the
    client has come back.
    """
    ratio = (state["own_ratio"][clients] + TRUST_AFTER) / (state["own_returns"][clients] + TRUST_AFTER)
    return np.asarray(_pooled(state, age) * ratio)


def calibration(state: State) -> float:
    """Return by what predictions have lately had to be multiplied to come true.

    Updates shrink as the model learns, so means over past rounds are too large, those of friends as those of memory.
    It is the same for all of a client's stand-ins: it changes what is expected of the choice, not the choice.
    """
    measured, foreseen = state["came_true"]
    return float(measured / foreseen) if foreseen > 0 else 1.0


def lately_returned(state: State, age: np.ndarray) -> np.ndarray:
    """Return whether anybody has lately come back after as many rounds [n]: half a return that has not faded."""
    return np.asarray((age > 0) & (state["returns"][age_class(age)] > 0.5))


def _pooled(state: State, age: np.ndarray) -> np.ndarray:
    seen = np.flatnonzero(state["returns"] > 0)
    if not len(seen):
        return np.full(len(age), np.nan)
    nearest = seen[np.abs(age_class(age)[:, None] - seen[None, :]).argmin(axis=1)]
    return np.asarray(state["return_error"][nearest] / state["returns"][nearest])
