"""How clients' updates move together: what those who are back tell about the memory of those who are not.

While a client is away the global model moves, and all clients' updates with it. The move of a client that is back is
mᵢ = Δᵢ − yᵢ, its update minus what was remembered of it. What is remembered of a missing client is moved along,

    y_k + c·m̄,   m̄ the mean move of the n clients that are back,

where c is the best linear prediction of its own move: with v the mean of ‖mᵢ‖² and γ that of mᵢ·mⱼ over pairs,
c = n·γ/(v + (n − 1)·γ), and a share c·γ/v of the memory's error is gone. Moves that have nothing in common give c = 0, which
is Stale's rule; moves that are all alike give c = 1, which is FedVARP's.
"""

from __future__ import annotations

import numpy as np

from fdsim.strategies.base import State
from fdsim.strategies.predicted_error import lately_returned


def blank_drift() -> State:
    """Make the record of moves before anybody has come back: sums of mᵢ·mⱼ, of ‖mᵢ‖² and of clients."""
    return {"drift": np.zeros(3)}


def enter_drift(state: State, squares: np.ndarray, square_of_sum: float, *, fading: float) -> None:
    """Note the moves of a round's n returning clients: ‖mᵢ‖² [n] and ‖Σ mᵢ‖²; a single one says nothing."""
    count = len(squares)
    if count > 1:
        state["drift"] *= 1 - fading
        state["drift"] += (
            (square_of_sum - squares.sum()) / (count - 1),
            squares.sum(),
            count,
        )


def drift_of(state: State, age: np.ndarray, returning: int) -> tuple[np.ndarray, np.ndarray]:
    """Return c for memories of some ages [n], and the share of their errors that is left.

    A memory is moved along only if clients have lately come back after as many rounds: the few that are left
    of a fleet move in ways of their own, and nobody can tell whether those who never return would follow.
    """
    together, alone, count = state["drift"]
    if not returning or count <= 0 or together <= 0:
        return np.zeros(len(age)), np.ones(len(age))
    alike = together / alone
    part = returning * alike / (1.0 + (returning - 1) * alike)
    moved = np.where(lately_returned(state, age), part, 0.0)
    return moved, 1.0 - moved * alike


def common_square(state: State) -> float:
    """Return γ, the mean of mᵢ·mⱼ: the squared length of what the moves have in common; 0 before any is known."""
    together, _, count = state["drift"]
    return float(max(together, 0.0) / count) if count > 0 else 0.0
