"""Absences written down by hand: who is away from which round to which."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pydantic import Field, NonNegativeInt, model_validator

from fdsim.catalogue import Table
from fdsim.participation.base import MaskedParticipation, ParticipationSetting


class Absence(Table):
    """One client's absence, from a round to a round, both included."""

    client: NonNegativeInt
    from_round: NonNegativeInt
    to_round: NonNegativeInt

    @model_validator(mode="after")
    def _forwards(self) -> Absence:
        if self.to_round < self.from_round:
            raise ValueError(
                f"the absence ends in round {self.to_round}, before it starts in {self.from_round}"
            )
        return self


class Scripted(MaskedParticipation):
    """Everybody is active except as written down."""

    absences: tuple[Absence, ...] = Field(
        description="list of { client, from_round, to_round }, ends included"
    )

    @model_validator(mode="after")
    def _known_clients(self) -> Scripted:
        for index, absence in enumerate(self.absences):
            if absence.client >= self.clients:
                raise ValueError(
                    f"absences[{index}]: there is no client {absence.client} among {self.clients}"
                )
        return self

    def masks(self, setting: ParticipationSetting, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """No luck involved."""
        round_index = 0
        while True:
            mask = np.ones(self.clients, dtype=bool)
            for absence in self.absences:
                if absence.from_round <= round_index <= absence.to_round:
                    mask[absence.client] = False
            yield mask
            round_index += 1
