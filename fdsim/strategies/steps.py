"""How far the steps of the global model last: whether what is new in a round is worth following.

A model that learns at a high rate swings: each step takes back a part of the one before, and all clients' updates turn
with it. Who predicts the update of a missing client exactly then swings along, as Full does; who answers with what was
right a round ago calms the swing, as Stale does. With q the correlation of steps that follow each other,

    q = Σ uₜ·uₜ₋₁ / Σ ‖uₜ‖‖uₜ₋₁‖   over late rounds, uₜ = wₜ − wₜ₋₁,

q is how much of a move is there in the next step as well. What clients' moves have in common is followed by as much
for the missing clients: wholly where steps go on (q = 1), not at all where they are nothing but noise (q = 0), and
against it where each takes the last one back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fdsim.strategies.base import Cohort, Federation, State

if TYPE_CHECKING:
    import torch


def blank_steps(federation: Federation) -> State:
    """Make the record of steps before the first."""
    import torch

    like = {"dtype": federation.dtype, "device": federation.accelerator}
    return {
        "before": torch.zeros(federation.parameters, **like),
        "step": torch.zeros(federation.parameters, **like),
        "turn": torch.zeros(3, **like),
        "noted": 0,
        "noted_in": -1,
        "lasting": np.zeros(2),
    }


def note_step(state: State, cohort: Cohort) -> torch.Tensor:
    """Return uₜ·uₜ₋₁, ‖uₜ‖² and ‖uₜ₋₁‖² [3] of the steps that led to a round; all zero before there are two."""
    import torch

    turn: torch.Tensor = state["turn"]
    if state["noted_in"] == cohort.round_index:
        return turn
    if state["noted"]:
        step = cohort.params - state["before"]
        turn.copy_(torch.stack([torch.dot(step, state["step"]), torch.dot(step, step), turn[1]]))
        state["step"] = step
    state["before"] = cohort.params  # nobody changes a global model: the next one is a new tensor
    state["noted"] += 1
    state["noted_in"] = cohort.round_index
    return turn


def enter_turn(state: State, turn: np.ndarray, *, fading: float) -> None:
    """Take in what `note_step` has returned."""
    product, square, square_before = turn
    state["lasting"] *= 1 - fading
    state["lasting"] += (product, np.sqrt(square * square_before))


def lasting(state: State) -> float:
    """Return q; 1 before two steps are known."""
    product, lengths = state["lasting"]
    return float(np.clip(product / lengths, -1.0, 1.0)) if lengths > 0 else 1.0
