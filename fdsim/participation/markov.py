"""Sticky dropouts: a client that is away tends to stay away."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pydantic import Field

from fdsim.participation.base import MaskedParticipation, ParticipationSetting


class Markov(MaskedParticipation):
    """Each client drops out and comes back by its own two-state Markov chain, started in equilibrium."""

    drop_prob: float = Field(
        default=0.1, gt=0, le=1, description="chance that an active client is away next round"
    )
    return_prob: float = Field(
        default=0.1, gt=0, le=1, description="chance that an absent client is back next round"
    )

    def masks(self, setting: ParticipationSetting, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """The share of active clients is return / (return + drop) at all times."""
        active = rng.random(self.clients) < self.return_prob / (self.return_prob + self.drop_prob)
        while True:
            yield active
            luck = rng.random(self.clients)
            active = np.where(active, luck >= self.drop_prob, luck < self.return_prob)
