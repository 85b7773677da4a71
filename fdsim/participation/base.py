"""The participation family: sources of a trace that simulate no devices."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from pydantic import Field, PositiveInt

from fdsim.catalogue import Component
from fdsim.rng import stream
from fdsim.trace import Cause, TraceRound, plain_round


@dataclass(frozen=True)
class ParticipationSetting:
    """What a participation process may depend on besides its own fields."""

    rounds: int
    seed: int
    round_interval_s: float
    true_cluster: np.ndarray | None = None
    """[K] the cluster of each client's data, when it is known."""


class Participation(Component):
    """A source of a trace: which clients are active in which round."""

    family: ClassVar[str] = "participation"

    clients: PositiveInt = Field(description="number of clients K")

    @property
    def client_count(self) -> int:
        """The number of clients K."""
        return self.clients

    @property
    def most_selected(self) -> int:
        """The most clients that a round can select."""
        return self.client_count

    def check_rounds(self, rounds: int) -> None:
        """Raise an error if the source cannot give so many rounds."""

    @abstractmethod
    def rounds(self, setting: ParticipationSetting) -> Iterator[TraceRound]:
        """Yield the rounds of the trace in order."""


class MaskedParticipation(Participation):
    """A participation process that only yields who would be active; all clients are selected, or some at random."""

    clients_per_round: PositiveInt | None = Field(
        None, description="clients selected in each round, at random; all if not set"
    )

    @property
    def most_selected(self) -> int:
        return min(self.client_count, self.clients_per_round or self.client_count)

    @abstractmethod
    def masks(self, setting: ParticipationSetting, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """Yield a mask [K] of the active clients for each round, without end."""

    def rounds(self, setting: ParticipationSetting) -> Iterator[TraceRound]:
        """Turn the masks into rounds."""
        masks = self.masks(setting, stream(setting.seed, "participation"))
        selected: np.ndarray | None = None
        for round_index in range(setting.rounds):
            if self.clients_per_round is not None and self.clients_per_round < self.client_count:
                rng = stream(setting.seed, "selection", round_index)
                selected = np.sort(rng.choice(self.client_count, self.clients_per_round, replace=False))
            yield plain_round(
                round_index, next(masks), setting.round_interval_s, Cause.scripted, selected=selected
            )
