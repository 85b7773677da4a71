"""Simple participation processes: independent, sticky, periodic and scripted dropouts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from fdsim.catalogue import Table
from fdsim.errors import ScenarioError
from fdsim.participation.base import MaskedParticipation, ParticipationSetting

Prob = Annotated[float, Field(ge=0, le=1)]


class Bernoulli(MaskedParticipation):
    """Each client is active with its own probability, independently of other clients and of the past."""

    active_prob: Prob | tuple[Prob, ...] = Field(
        default=0.5, description="one probability for all clients, or a list with one per client"
    )

    @model_validator(mode="after")
    def _one_each(self) -> Bernoulli:
        if isinstance(self.active_prob, tuple) and len(self.active_prob) != self.clients:
            raise ValueError(
                f"active_prob lists {len(self.active_prob)} probabilities for {self.clients} clients"
            )
        return self

    def masks(self, setting: ParticipationSetting, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """Draw once per client and round."""
        chance = np.broadcast_to(np.asarray(self.active_prob, dtype=float), self.clients)
        while True:
            yield rng.random(self.clients) < chance


class Markov(MaskedParticipation):
    """Each client drops out and returns by its own two-state Markov chain, started in equilibrium: dropouts are sticky."""

    drop_prob: float = Field(
        default=0.1, gt=0, le=1, description="chance that an active client drops out of the next round"
    )
    return_prob: float = Field(
        default=0.1, gt=0, le=1, description="chance that a missing client is active again in the next round"
    )

    def masks(self, setting: ParticipationSetting, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """Walk the chains; the expected fraction of active clients is return / (return + drop) in every round."""
        active = rng.random(self.clients) < self.return_prob / (self.return_prob + self.drop_prob)
        while True:
            yield active
            luck = rng.random(self.clients)
            active = np.where(active, luck >= self.drop_prob, luck < self.return_prob)


class Periodic(MaskedParticipation):
    """Each client is active in the first part of a period, with a phase of its own, as in different time zones."""

    period: PositiveInt = Field(default=10, description="length of a period, rounds")
    active_frac: float = Field(
        default=0.5, gt=0, le=1, description="fraction of the period in which a client is active"
    )
    phase: Literal["spread", "random", "by_cluster"] = Field(
        default="spread", description="evenly over the clients, at random, or one phase for each cluster"
    )

    def masks(self, setting: ParticipationSetting, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """Yield masks: a client is active in round t when (t + phase) mod period lies in the first part."""
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


class Absence(Table):
    """The rounds that one client drops out of, first and last included."""

    client: NonNegativeInt = Field(description="the client that is missing")
    from_round: NonNegativeInt = Field(description="the first round it is missing from")
    to_round: NonNegativeInt = Field(description="the last round it is missing from")

    @model_validator(mode="after")
    def _forwards(self) -> Absence:
        if self.to_round < self.from_round:
            raise ValueError(
                f"the absence ends in round {self.to_round}, before it starts in {self.from_round}"
            )
        return self


class Scripted(MaskedParticipation):
    """All clients are active except in the listed rounds."""

    absences: tuple[Absence, ...] = Field(
        description="list of { client, from_round, to_round }, both rounds included"
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
        """Yield the listed masks; nothing is random."""
        round_index = 0
        while True:
            mask = np.ones(self.clients, dtype=bool)
            for absence in self.absences:
                if absence.from_round <= round_index <= absence.to_round:
                    mask[absence.client] = False
            yield mask
            round_index += 1
