"""Independent dropouts: each client throws its own coin in each round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import numpy as np
from pydantic import Field, model_validator

from fdsim.participation.base import MaskedParticipation, ParticipationSetting

Prob = Annotated[float, Field(ge=0, le=1)]


class Bernoulli(MaskedParticipation):
    """Each client is active with its own probability, independently of everybody and of the past."""

    active_prob: Prob | tuple[Prob, ...] = Field(
        default=0.5, description="for all clients, or a list with one per client"
    )

    @model_validator(mode="after")
    def _one_each(self) -> Bernoulli:
        if isinstance(self.active_prob, tuple) and len(self.active_prob) != self.clients:
            raise ValueError(
                f"active_prob lists {len(self.active_prob)} probabilities for {self.clients} clients"
            )
        return self

    def masks(self, setting: ParticipationSetting, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """A coin per client and round."""
        chance = np.broadcast_to(np.asarray(self.active_prob, dtype=float), self.clients)
        while True:
            yield rng.random(self.clients) < chance
