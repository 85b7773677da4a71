"""What FDMS knows of friendship: R, the mean similarity of each pair, and N, how often it was compared.

Both are symmetric [K, K] arrays inside a strategy's state. Up to a few thousand clients they are kept in
double precision. Above that N becomes uint16 (counting stops at 65535) and R, for scores in 0..1, 16-bit
fixed point: a step of 2⁻¹⁶, whose rounding adds at most (n + 1)/2 · 2⁻¹⁷ to a mean of n scores (a float16
would lose ten times as much). Distances have no fixed range and are then stored as float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fdsim.strategies.base import State

Precision = Literal["auto", "double", "half"]
#: Above this number of clients `auto` means `half`.
DOUBLE_UP_TO = 3000
_STEPS = np.iinfo(np.uint16).max


@dataclass(frozen=True)
class Forgetting:
    """How old comparisons fade: not at all, beyond `window` meetings, or by `decay` a round."""

    window: int | None = None
    decay: float | None = None


def blank_similarity(clients: int, precision: Precision, *, bounded: bool, forgetting: Forgetting) -> State:
    """Make R and N before any pair was compared; `bounded` says that scores lie in 0..1."""
    half = precision == "half" or (precision == "auto" and clients > DOUBLE_UP_TO)
    shape = (clients, clients)
    kind = (np.uint16 if bounded else np.float32) if half else np.float64
    state: State = {
        "R": np.zeros(shape, dtype=kind),
        "N": np.zeros(shape, dtype=np.uint16 if half else np.int32),
    }
    if forgetting.decay is not None:
        state["weight"] = np.zeros(shape, dtype=np.float32 if half else np.float64)
        state["last_round"] = np.zeros(shape, dtype=np.int32)
    return state


def decoded(scores: np.ndarray) -> np.ndarray:
    """Return scores as floats, whatever type stores them."""
    if scores.dtype == np.uint16:
        wide: np.ndarray = scores.astype(np.float32 if scores.size > 1_000_000 else np.float64)
        wide /= _STEPS
        return wide
    return scores


def record_scores(
    state: State, clients: np.ndarray, scores: np.ndarray, forgetting: Forgetting, *, round_index: int
) -> None:
    """Add scores [S, S] to the means: R ← (N·R + r)/(N + 1), N ← N + 1; NaN leaves a pair alone."""
    compared = ~np.isnan(scores)
    np.fill_diagonal(compared, False)
    # Places in the flat arrays: half the time of rows and columns.
    pairs = clients[:, None] * len(state["N"]) + clients
    meetings, kept = state["N"].take(pairs), state["R"].take(pairs)
    if forgetting.decay is None:
        weight = meetings + 1.0
        if forgetting.window is not None:
            weight = np.minimum(weight, forgetting.window)
    else:
        weight, last_round = state["weight"].take(pairs), state["last_round"].take(pairs)
        faded = weight * (1.0 - forgetting.decay) ** (round_index - last_round) + 1.0
        state["weight"].put(pairs, np.where(compared, faded, weight))
        state["last_round"].put(pairs, np.where(compared, round_index, last_round))
        weight = faded
    mean = decoded(kept)
    mean = mean + (scores - mean) / weight
    if kept.dtype == np.uint16:
        mean = np.rint(np.clip(np.where(compared, mean, 0.0), 0.0, 1.0) * _STEPS)
    state["R"].put(pairs, np.where(compared, mean, kept))
    most = np.iinfo(meetings.dtype).max
    state["N"].put(pairs, meetings + (compared & (meetings < most)))
