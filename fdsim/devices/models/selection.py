"""Selections: which clients the server selects for a round."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, PositiveInt, model_validator

from fdsim.catalogue import Component, named
from fdsim.errors import ContractError


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
        """Return up to `wanted` of the candidates, by their numbers.

        Depends on nothing but its arguments: with the pool "all", clients are selected ahead of the world's clock.
        """

    def target_of(self, clients: int) -> int:
        """Return the target, checked: an integer from 1 to the number of clients."""
        target = self.target(clients)
        if isinstance(target, bool | np.bool_) or not isinstance(target, int | np.integer):
            raise self._broken(f"target({clients}) returned {target!r}, which is not an integer")
        if not 1 <= target <= clients:
            raise self._broken(f"target({clients}) returned {target}, which is not in 1..{clients}")
        return int(target)

    def selected_from(self, candidates: np.ndarray, wanted: int, rng: np.random.Generator) -> np.ndarray:
        """[S] Return whom it selects, checked and ascending: at most `wanted` of the candidates, each once."""
        given = self._numbers(self.select(candidates.copy(), wanted, rng))
        if len(given) > wanted:
            raise self._broken(f"select returned {len(given)} clients, and at most {wanted} are wanted")
        if np.array_equal(given, candidates):
            return candidates
        selected = np.sort(given)
        if (twice := selected[1:][selected[1:] == selected[:-1]]).size:
            raise self._broken(f"select returned client {twice[0]} twice")
        nearest = candidates[np.searchsorted(candidates[:-1], selected)]
        if (unknown := selected[nearest != selected]).size:
            raise self._broken(f"select returned client {unknown[0]}, who is not among the candidates")
        return selected

    def _numbers(self, answer: object) -> np.ndarray:
        """Return an answer of `select` as numbers of clients, which lists of integers are too."""
        try:
            given = np.asarray(answer)
        except ValueError:
            given = np.empty((0, 0))
        if given.ndim == 1 and (not given.size or given.dtype.kind in "iu"):
            return given.astype(np.int64, copy=False)
        what = f"{given.dtype} values" if given.ndim == 1 else repr(answer)[:80]
        remedy = ". A mask is turned into them by candidates[mask]" if given.dtype.kind == "b" else ""
        raise self._broken(f"select returned {what}, not the numbers of clients{remedy}")

    def _broken(self, problem: str) -> ContractError:
        return ContractError(f"{named(self)}: {problem}")


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
        return max(1, math.ceil((self.frac or 0.0) * clients - 1e-9))

    def select(self, candidates: np.ndarray, wanted: int, rng: np.random.Generator) -> np.ndarray:
        """Return a sample in which each candidate has the same chance."""
        if wanted >= len(candidates):
            return candidates
        return np.sort(rng.choice(candidates, size=wanted, replace=False))
