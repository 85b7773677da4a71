"""Friends with memory: a missing client is represented by whatever is expected to err least.

For a missing client k the server can tell, from what it has seen, how wrong each stand-in would be:

- a friend's fresh update: the mean of ‖Δ_k − Δᵢ‖² over late meetings, or what their signatures say;
- k's own last update, moved along with those of the clients that are back: the mean of ‖Δ − last‖² over returns
  after as many rounds, less what they have in common;
- the mean of the active: follows from the distances among them and to k.

All of them follow what the clients' moves have in common only as far as the steps of the global model last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from fdsim.strategies.base import (
    LEFT_OUT,
    Blend,
    Cohort,
    Federation,
    Feedback,
    State,
    Strategy,
    UpdateScore,
    renormalised,
)
from fdsim.strategies.drift import blank_drift, common_square, drift_of, enter_drift
from fdsim.strategies.mixtures import Rule, Sources, Substitutes, spread, substitutes
from fdsim.strategies.predicted_error import blank_returns, calibration, enter_returns, memory_error
from fdsim.strategies.remembered import (
    affordable_form,
    age_of,
    blank_remembered,
    compare_and_remember,
    recall,
    recalled_sum,
    settle,
)
from fdsim.strategies.signatures import (
    blank_signatures,
    distances,
    enter_distances,
    enter_signatures,
    sketched,
)
from fdsim.strategies.similarity import Forgetting, blank_similarity, decoded, record_scores
from fdsim.strategies.steps import blank_steps, enter_turn, lasting, note_step

if TYPE_CHECKING:
    import torch

#: Above this many clients pairs meet too rarely for R, which takes too much memory besides.
MEETINGS_UP_TO = 2000
#: Numbers in a sketch, where many clients are active: a distance is then off by 2 to 3 % in a meeting, less in the mean of
#: several, at a quarter of the time of whole updates with 200 clients of a small net.
SKETCH_DIM = 4096
#: Above this many known clients their mean is not evened out: with so many it would hardly change.
EVEN_UP_TO = 512


@dataclass(frozen=True)
class _Plan:
    """What is to represent each of M missing clients."""

    known: np.ndarray
    """[M] whether anything is remembered of it; the others are left out."""
    found: Substitutes
    followed: np.ndarray
    """[M] how much of the mean move of those who are back is added to the mixture."""
    returning: np.ndarray
    """[S] the parts of the active in that mean."""
    lag_error: np.ndarray
    """[M] what is expected to be wrong because moves that do not last are not followed."""


class FdmsMemory(Strategy):
    """Represents a missing client by friends, by its own last update or by both, as predicted errors advise.

    `rule = "least"` takes the stand-in of least predicted error, "blend" weights stand-ins by its inverse, and
    "best" also by what their errors have in common. A client that was never seen is left out of the average
    over the others, in which circles of friends that few of the known belong to then weigh more. Where neither
    friends nor memory are known this is Dropout's rule.
    """

    compares: ClassVar[bool] = True
    stores: ClassVar[bool] = True
    befriends: ClassVar[bool] = True
    fallback: ClassVar[int | None] = LEFT_OUT

    rule: Rule = Field(
        "best",
        description="One stand-in, weights by inverse predicted error, or the best linear combination.",
    )
    friends: Literal["auto", "meetings", "signatures"] = Field(
        "auto", description="How friends are found: by R and N, by signatures, or by the number of clients."
    )
    memory: Literal["auto", "each", "half", "circles"] = Field(
        "auto",
        description="What is remembered: each client's last update, the same in 16 bits, one per circle of "
        "friends (32 to 256 circles), or the first of these that max_memory_gb allows.",
    )
    max_memory_gb: float = Field(4.0, gt=0, description="The most memory the stored updates may take, GB.")
    window: int = Field(10, ge=1, description="Meetings remembered; older ones fade beyond that many.")
    fading: float = Field(0.1, ge=0, lt=1, description="Share of the weight of returns lost with each round.")
    evenness: float = Field(
        16.0,
        ge=0,
        description="Clients by which each circle is taken to be larger than seen, for the unseen.",
    )
    sketch_dim: int | None = Field(
        None,
        ge=8,
        description="Compare sketches of this many numbers, not whole updates, however few clients are active.",
    )
    whole_up_to: int = Field(
        64,
        ge=0,
        description="Active clients whose whole updates are compared; of more, sketches of 4096 numbers, where the net "
        "has at least four times as many parameters.",
    )
    accept_partial: bool = Field(
        False, description="Take the work of clients that the deadline cut off in training."
    )

    @property
    def takes_partial(self) -> bool:
        return self.accept_partial

    @property
    def update_score(self) -> UpdateScore:
        if self.sketch_dim is not None:
            return UpdateScore("distance", self.sketch_dim)
        return UpdateScore("distance", SKETCH_DIM, whole_up_to=self.whole_up_to)

    @property
    def forgetting(self) -> Forgetting:
        """How old meetings fade."""
        return Forgetting(window=self.window)

    def check(self, federation: Federation) -> None:
        affordable_form(self.label, federation, self.memory, self.max_memory_gb)

    def start(self, federation: Federation) -> State:
        form = affordable_form(self.label, federation, self.memory, self.max_memory_gb)
        state = blank_remembered(federation, form, self.max_memory_gb) | blank_returns(federation.clients)
        state |= blank_drift() | blank_steps(federation)
        meet = self.friends == "meetings" or (self.friends == "auto" and federation.clients <= MEETINGS_UP_TO)
        if meet:
            state |= blank_similarity(federation.clients, "auto", bounded=False, forgetting=self.forgetting)
        if not meet or form == "circles":
            state |= blank_signatures(federation)
        return state

    def blend(self, state: State, cohort: Cohort) -> Blend:
        active, missing = cohort.active, cohort.missing
        plan = self._plan(state, cohort)
        known, found = plan.known, plan.found
        # Who is known speaks for who is not; then the weights of the missing go to what their substitutes are made of.
        speaks = np.concatenate([active, missing[known]])
        weight, unknown_error = self._speaking(state, cohort, speaks)
        active_weight, missing_weight = weight[: len(active)], np.zeros(len(missing))
        missing_weight[known] = weight[len(active) :]
        stand_in = np.where(found.main >= 0, active[np.maximum(found.main, 0)], found.main)
        stand_in = np.where(known, stand_in, LEFT_OUT)
        recalled, moved = missing_weight * found.parts[:, -1], float(missing_weight @ plan.followed)

        def correction() -> torch.Tensor | None:
            """Return what is remembered of the missing, and the mean move of those who are back."""
            returning = int(np.count_nonzero(plan.returning))
            moves = moved / returning if returning else 0.0
            return recalled_sum(state, missing, recalled, cohort.params, moves=moves)

        mixture = found.parts.copy()
        mixture[:, :-1] += plan.followed[:, None] * plan.returning
        return Blend(
            weights=active_weight + missing_weight @ found.parts[:, :-1],
            stand_in=stand_in,
            similarity=np.where(stand_in >= 0, -np.sqrt(found.main_error), np.nan),
            correction=correction,
            mixture=mixture,
            predicted_error=np.where(known, found.error + plan.lag_error, unknown_error) * calibration(state),
        )

    def _plan(self, state: State, cohort: Cohort) -> _Plan:
        """Return what is to represent each missing client."""
        active, missing = cohort.active, cohort.missing
        age = age_of(state, missing, cohort.round_index)
        known = age > 0
        back = age_of(state, active, cohort.round_index) > 0
        drift, left = drift_of(state, age, int(back.sum()))
        found = substitutes(
            Sources(
                apart=_apart(state, missing, active),
                among=_apart(state, active, active),
                remembered=np.where(known, memory_error(state, missing, age) * left, np.nan),
                mean=renormalised(cohort),
            ),
            self.rule,
            direct=state.get("direct", False),
        )
        # Fresh updates have the whole move in them, memory has none of it: both are given as much of it as lasts.
        behind = 1.0 - lasting(state)
        return _Plan(
            known=known,
            found=found,
            followed=drift * (found.parts[:, -1] - behind),
            returning=back / max(back.sum(), 1),
            lag_error=behind**2 * drift * common_square(state),
        )

    def _speaking(self, state: State, cohort: Cohort, speaks: np.ndarray) -> tuple[np.ndarray, float]:
        """Return weights of the known clients that sum to 1, and the error to expect of this for the unknown."""
        own = cohort.client_weight[speaks]
        left_out = 1.0 - own.sum()
        if len(speaks) == len(cohort.active) + len(cohort.missing):
            return own, np.nan
        if len(speaks) > EVEN_UP_TO:
            return own / own.sum(), np.nan
        parts, error = spread(_apart(state, speaks, speaks), own / own.sum(), self.evenness)
        return own + left_out * parts, error

    def store(
        self, state: State, cohort: Cohort, clients: np.ndarray, updates: torch.Tensor
    ) -> torch.Tensor | None:
        import torch

        turn = note_step(state, cohort).expand(len(clients), 3)
        figures = [turn, compare_and_remember(state, cohort, clients, updates)]
        if "signature" in state:
            figures += [updates.square().sum(dim=1, keepdim=True), sketched(state, updates)]
        return torch.cat(figures, dim=1)

    def after_round(self, state: State, cohort: Cohort, feedback: Feedback) -> State:
        if feedback.similarity is None or feedback.figures is None:
            return state
        active, apart, figures = cohort.active, np.square(feedback.similarity), feedback.figures
        units = feedback.learning_rate**2
        enter_turn(state, figures[0, :3], fading=self.fading)
        age = age_of(state, active, cohort.round_index)
        back = age > 0
        if back.any():
            squares, square_of_sum = figures[back, 3] / units, figures[:, 4].sum() / units
            enter_returns(state, active[back], age[back], squares, fading=self.fading)
            enter_drift(state, squares, square_of_sum, fading=self.fading)
        if "N" in state:
            record_scores(state, active, apart, self.forgetting, round_index=cohort.round_index)
        if "signature" in state:
            enter_distances(state, active, apart, figures[:, 5] / units)
            enter_signatures(state, active, figures[:, 6:])
        settle(state, cohort)
        return state

    def stored(self, state: State, cohort: Cohort, clients: np.ndarray) -> torch.Tensor:
        import torch

        plan = self._plan(state, cohort)
        rows = np.searchsorted(cohort.missing, clients)
        found = recall(state, clients, cohort.params)
        found *= torch.as_tensor(plan.found.parts[rows, -1:]).to(found)
        before = recalled_sum(state, cohort.active, plan.returning, cohort.params)
        return (
            found
            if before is None
            else found.addr_(torch.as_tensor(plan.followed[rows]).to(found), before, alpha=-1.0)
        )

    def friendship(self, state: State) -> tuple[np.ndarray, np.ndarray] | None:
        return (-np.sqrt(decoded(state["R"])), state["N"]) if "N" in state else None


def _apart(state: State, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return the ‖Δᵢ − Δⱼ‖² to expect [rows, columns]; NaN where nothing is known, 0 for a client and itself."""
    if "N" in state:
        # Rows, then columns: half the time of both at once.
        met = state["N"].take(rows, axis=0).take(columns, axis=1) > 0
        found = np.where(met, decoded(state["R"].take(rows, axis=0).take(columns, axis=1)), np.nan)
    else:
        found = distances(state, rows, columns)
    return np.where(rows[:, None] == columns[None, :], 0.0, found)
