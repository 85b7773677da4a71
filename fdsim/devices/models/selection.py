"""Selections: which clients the server selects for a round."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, PositiveInt, model_validator

from fdsim.catalogue import Component


class Selection(Component):
    """A rule that selects the clients of a round."""

    family: ClassVar[str] = "selection"

    pool: Literal["all", "eligible"] = Field(
        default="all", description="select among all clients, or among those eligible when the round starts"
    )

    @abstractmethod
    def target(self, clients: int) -> int:
        """Return how many reports the server wants of `clients` clients."""

    @abstractmethod
    def select(self, candidates: np.ndarray, wanted: int, rng: np.random.Generator) -> np.ndarray:
        """Return up to `wanted` of the candidates, ascending.

        Depends on nothing but its arguments: with the pool "all", clients are selected ahead of the world's clock.
        """


class All(Selection):
    """All clients are selected."""

    def target(self, clients: int) -> int:
        """Return the number of clients."""
        return clients

    def select(self, candidates: np.ndarray, wanted: int, rng: np.random.Generator) -> np.ndarray:
        """Return all candidates."""
        return candidates


class Random(Selection):
    """A random sample without replacement, of a fixed size or a fraction of all clients."""

    clients_per_round: PositiveInt | None = Field(default=None, description="reports wanted in a round")
    frac: float | None = Field(
        default=None, gt=0, le=1, description="reports wanted, as a fraction of all clients"
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> Random:
        if (self.clients_per_round is None) == (self.frac is None):
            raise ValueError("give either clients_per_round or frac")
        return self

    def target(self, clients: int) -> int:
        """Return the fixed number, or the fraction rounded up; never more than there are."""
        if self.clients_per_round is not None:
            return min(self.clients_per_round, clients)
        return math.ceil((self.frac or 0.0) * clients - 1e-9)

    def select(self, candidates: np.ndarray, wanted: int, rng: np.random.Generator) -> np.ndarray:
        """Return a sample in which each candidate has the same chance."""
        if wanted >= len(candidates):
            return candidates
        return np.sort(rng.choice(candidates, size=wanted, replace=False))
