"""The `[training]` table: how a client trains the global model, and what the server does with the updates."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from fdsim.catalogue import Chosen, Table
from fdsim.learning.config.schedule import Constant, Schedule
from fdsim.learning.server_optimisers import Plain, ServerOptimiser

#: More rounds, epochs or samples than any run can have; products of two such numbers are still whole in 64 bits.
MOST = 10**9


class Training(Table):
    """Local SGD and its aggregation.

    A client passes over its samples in a fresh random order, in batches of which the last may be smaller;
    `local_epochs` counts such passes, `local_steps` counts batches.
    """

    local_epochs: PositiveInt | None = Field(
        None, le=MOST, description="passes over a client's samples per round"
    )
    local_steps: PositiveInt | None = Field(
        None, le=MOST, description="batches per round, instead of local_epochs"
    )
    batch_size: PositiveInt = Field(10, le=MOST, description="samples per batch of a client")
    batch_growth: Literal["constant", "linear"] = Field(
        "constant",
        description="linear: B_t = batch_size · t with t from 1, the schedule whose error vanishes",
    )
    learning_rate: PositiveFloat = Field(0.1, description="η_L, of the clients' SGD")
    global_learning_rate: PositiveFloat = Field(1.0, description="η, of the server")
    momentum: NonNegativeFloat = Field(0.0, lt=1.0, description="momentum of the clients' SGD")
    weight_decay: NonNegativeFloat = Field(0.0, description="weight decay of the clients' SGD")
    proximal_mu: NonNegativeFloat = Field(
        0.0, description="μ of FedProx, the pull towards the downloaded model"
    )
    clip_norm: PositiveFloat | None = Field(
        None, description="gradients with a larger Euclidean norm are scaled down to it"
    )
    schedule: Schedule = Field(Constant(), description="how learning_rate changes from round to round")
    server_optimiser: Annotated[ServerOptimiser, Chosen("optimiser")] = Field(
        default_factory=Plain, description="what the server does with the averaged update"
    )
    weighting: Literal["uniform", "samples"] = Field(
        "uniform", description="a client's weight in the average: equal, or proportional to its samples"
    )

    @model_validator(mode="after")
    def _one_length(self) -> Training:
        if (self.local_epochs is None) == (self.local_steps is None):
            given = "neither is given" if self.local_epochs is None else "both are given"
            raise ValueError(f"exactly one of local_epochs and local_steps must be given; {given}")
        return self

    def batch_size_in(self, round_index: int) -> int:
        """Return B_t."""
        return self.batch_size * (round_index + 1) if self.batch_growth == "linear" else self.batch_size

    def learning_rate_in(self, round_index: int) -> float:
        """Return η_L of a round."""
        return self.learning_rate * self.schedule.factor(round_index)

    def steps(self, sample_counts: np.ndarray, round_index: int = 0) -> np.ndarray:
        """Return each client's number of batches [K] in a round."""
        if self.local_steps is not None:
            return np.full(len(sample_counts), self.local_steps, dtype=np.int64)
        batches = -(-np.asarray(sample_counts, dtype=np.int64) // self.batch_size_in(round_index))
        return batches * int(self.local_epochs or 0)

    def samples_per_round(self, sample_counts: np.ndarray, round_index: int = 0) -> np.ndarray:
        """Return the samples [K] each client processes in a round."""
        counts = np.asarray(sample_counts, dtype=np.int64)
        batch_size = self.batch_size_in(round_index)
        passes, rest = np.divmod(self.steps(counts, round_index), -(-counts // batch_size))
        return np.asarray(passes * counts + np.minimum(rest * batch_size, counts))
