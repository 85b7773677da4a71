"""Regular absences: clients come and go with a fixed period, as time zones do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from pydantic import Field, PositiveInt

from fdsim.errors import ScenarioError
from fdsim.participation.base import MaskedParticipation, ParticipationSetting


class Periodic(MaskedParticipation):
    """Each client is active in the first part of a period of its own phase."""

    period: PositiveInt = Field(default=10, description="length of a period, rounds")
    active_frac: float = Field(
        default=0.5, gt=0, le=1, description="share of the period in which a client is active"
    )
    phase: Literal["spread", "random", "by_cluster"] = Field(
        default="spread", description="evenly over the clients, at random, or one phase for each cluster"
    )

    def masks(self, setting: ParticipationSetting, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """Round t is active for a client when (t + its phase) mod period lies in the first part."""
        phase = self._phases(setting, rng)
        length = max(1, round(self.active_frac * self.period))
        round_index = 0
        while True:
            yield (round_index + phase) % self.period < length
            round_index += 1

    def _phases(self, setting: ParticipationSetting, rng: np.random.Generator) -> np.ndarray:
        if self.phase == "random":
            return rng.integers(self.period, size=self.clients)
        place, places = np.arange(self.clients), self.clients
        if self.phase == "by_cluster":
            if setting.true_cluster is None:
                raise ScenarioError(
                    "participation.phase",
                    "'by_cluster' needs clusters",
                    "choose a clustered partition, or 'spread'",
                )
            _, place = np.unique(setting.true_cluster, return_inverse=True)
            places = int(place.max()) + 1
        return np.asarray(place * self.period // places)
