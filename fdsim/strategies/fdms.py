"""Friend discovery and model substitution: the algorithm this project exists for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from fdsim.errors import InputError
from fdsim.strategies.base import (
    MEAN,
    Blend,
    Cohort,
    Federation,
    Feedback,
    State,
    Strategy,
    UpdateScore,
    substituted,
)
from fdsim.strategies.reduction import Reduction, blank_candidates, eliminate
from fdsim.strategies.signatures import blank_signatures, enter_signatures, likeness, sketched
from fdsim.strategies.similarity import Forgetting, Precision, blank_similarity, decoded, record_scores

if TYPE_CHECKING:
    import torch


class Fdms(Strategy):
    """Lets a missing client's most similar active client, its friend, stand in for it.

    The friend φ(k) is the active client with the highest mean similarity R[k, i] so far (ties: the lowest
    index). R[k] cannot change while k is missing, so φ is known before any training and the aggregate is a
    weighted sum of the received updates. A missing client that was never compared with an active one, or
    whose best score is below `min_similarity`, falls back to Dropout's rule.

    `friends = "signatures"` goes beyond the paper: the score is ½(cos + 1) of two clients' signatures, so that
    friends need never have met, and K×128 numbers are kept in place of K×K.
    """

    befriends: ClassVar[bool] = True
    fallback: ClassVar[int | None] = MEAN

    friends: Literal["meetings", "signatures"] = Field(
        "meetings",
        description="Find friends by the mean similarity R of updates received in the same rounds, or by "
        "signatures, which also compare clients that have never met.",
    )
    similarity: Literal["cosine", "distance"] = Field("cosine", description="½(cos + 1), or −‖Δᵢ − Δⱼ‖.")
    min_similarity: float | None = Field(
        None, description="Clients whose best score is lower fall back to Dropout's rule."
    )
    window: int | None = Field(None, ge=1, description="Comparisons of a pair that count; older ones fade.")
    decay: float | None = Field(
        None, gt=0, lt=1, description="Fraction of a comparison's weight lost per round."
    )
    reduction: Reduction | None = Field(None, description="Candidate sets: compare fewer and fewer pairs.")
    sketch_dim: int | None = Field(
        None, ge=8, description="Compare sketches of this many numbers instead of whole updates."
    )
    precision: Precision = Field(
        "auto",
        description="How R and N are stored: double, half (2 bytes), or auto, by the number of clients.",
    )
    accept_partial: bool = Field(
        False, description="Use the unfinished work of clients that the deadline cut off in training."
    )

    @model_validator(mode="after")
    def _one_way_to_forget(self) -> Fdms:
        if self.window is not None and self.decay is not None:
            raise ValueError("window and decay are two ways to forget; set only one of them")
        pairwise = {"similarity", "window", "decay", "reduction", "sketch_dim", "precision"}
        default = type(self).model_fields
        given = sorted(name for name in pairwise if getattr(self, name) != default[name].default)
        if self.friends == "signatures" and given:
            raise ValueError(
                f"{given[0]} is about pairs that meet; with friends = 'signatures' no pairs are compared"
            )
        return self

    @property
    def compares(self) -> bool:
        return self.friends == "meetings"

    @property
    def stores(self) -> bool:
        return self.friends == "signatures"

    @property
    def takes_partial(self) -> bool:
        return self.accept_partial

    @property
    def update_score(self) -> UpdateScore:
        return UpdateScore(self.similarity, self.sketch_dim)

    @property
    def forgetting(self) -> Forgetting:
        """How old comparisons fade."""
        return Forgetting(self.window, self.decay)

    def check(self, federation: Federation) -> None:
        if self.sketch_dim is not None and self.sketch_dim > federation.parameters:
            raise InputError(
                f"{self.label}.sketch_dim",
                f"a sketch of {self.sketch_dim} numbers is larger than the model of {federation.parameters}",
                "choose a smaller sketch_dim, or omit it",
            )

    def start(self, federation: Federation) -> State:
        if self.friends == "signatures":
            return blank_signatures(federation)
        bounded = self.similarity == "cosine"
        state = blank_similarity(
            federation.clients, self.precision, bounded=bounded, forgetting=self.forgetting
        )
        if self.reduction is not None:
            state |= blank_candidates(federation.clients)
        return state | {"rounds": federation.rounds}

    def blend(self, state: State, cohort: Cohort) -> Blend:
        if self.friends == "signatures":
            scores = np.nan_to_num(0.5 * (likeness(state, cohort.missing, cohort.active) + 1.0), nan=-np.inf)
        else:
            pairs = np.ix_(cohort.missing, cohort.active)
            usable = state["N"][pairs] > 0
            if self.reduction is not None:
                usable &= state["candidates"][pairs]
            scores = np.where(usable, decoded(state["R"][pairs]), -np.inf)
        best = scores.argmax(axis=1)  # the first of equals, and clients ascend
        score = scores[np.arange(len(best)), best]
        found = score >= (-np.inf if self.min_similarity is None else self.min_similarity)
        found &= np.isfinite(score)
        stand_in = np.where(found, cohort.active[best], MEAN)
        return substituted(cohort, stand_in, np.where(found, score, np.nan))

    def pairs(self, state: State, cohort: Cohort) -> np.ndarray | None:
        if self.reduction is None:
            return None
        wanted = state["candidates"][np.ix_(cohort.active, cohort.active)]
        # Most of a run passes before the first elimination; None lets the engine take the plain product.
        return None if wanted.sum() == wanted.size - len(wanted) else wanted | wanted.T

    def store(
        self, state: State, cohort: Cohort, clients: np.ndarray, updates: torch.Tensor
    ) -> torch.Tensor | None:
        return sketched(state, updates)

    def after_round(self, state: State, cohort: Cohort, feedback: Feedback) -> State:
        if feedback.figures is not None:
            enter_signatures(state, cohort.active, feedback.figures)
        if feedback.similarity is None:
            return state
        record_scores(
            state, cohort.active, feedback.similarity, self.forgetting, round_index=cohort.round_index
        )
        if self.reduction is not None:
            eliminate(state, self.reduction, rounds=state["rounds"], rounds_done=cohort.round_index + 1)
        return state

    def friendship(self, state: State) -> tuple[np.ndarray, np.ndarray] | None:
        return (decoded(state["R"]), state["N"]) if "N" in state else None

    def report(self, state: State) -> dict[str, float]:
        if self.reduction is None:
            return {}
        clients = len(state["candidates"])
        report = {
            "pairs_eliminated": state["eliminated"],
            "candidates_frac": float(state["candidates"].sum() / max(1, clients * (clients - 1))),
        }
        return report | ({"theta": state["theta"]} if math.isfinite(state["theta"]) else {})
