"""How the local learning rate changes from round to round."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, NonNegativeFloat, PositiveFloat, PositiveInt

from fdsim.catalogue import Table


class Constant(Table):
    """The same rate in every round."""

    kind: Literal["constant"] = Field("constant", description="the same rate in every round")

    def factor(self, round_index: int) -> float:
        """Return what the learning rate is multiplied by."""
        return 1.0


class Cosine(Table):
    """Falls along half a cosine wave to a floor and stays there."""

    kind: Literal["cosine"] = Field("cosine", description="falls along half a cosine wave")
    rounds: PositiveInt = Field(description="rounds until the floor")
    floor_frac: NonNegativeFloat = Field(0.0, le=1.0, description="fraction of learning_rate at the floor")

    def factor(self, round_index: int) -> float:
        """Return what the learning rate is multiplied by."""
        done_frac = min(round_index / self.rounds, 1.0)
        return self.floor_frac + (1.0 - self.floor_frac) * 0.5 * (1.0 + math.cos(math.pi * done_frac))


class Step(Table):
    """Multiplies the rate by a factor every so many rounds."""

    kind: Literal["step"] = Field("step", description="changes every so many rounds")
    every: PositiveInt = Field(description="rounds between two changes")
    by: PositiveFloat = Field(0.5, description="factor of each change")

    def factor(self, round_index: int) -> float:
        """Return what the learning rate is multiplied by."""
        return float(self.by ** (round_index // self.every))


class Inverse(Table):
    """Falls as 1 / (1 + decay · t), as convergence proofs assume."""

    kind: Literal["inverse"] = Field("inverse", description="falls as 1 / (1 + decay · t)")
    decay: NonNegativeFloat = Field(0.01, description="decay per round")

    def factor(self, round_index: int) -> float:
        """Return what the learning rate is multiplied by."""
        return 1.0 / (1.0 + self.decay * round_index)


class Warmup(Table):
    """Rises in equal steps to the full rate and stays there."""

    kind: Literal["warmup"] = Field("warmup", description="rises to the full rate")
    rounds: PositiveInt = Field(description="rounds until the full rate")

    def factor(self, round_index: int) -> float:
        """Return what the learning rate is multiplied by."""
        return min((round_index + 1) / self.rounds, 1.0)


def _table(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


Schedule = Annotated[
    Annotated[Constant | Cosine | Step | Inverse | Warmup, Field(discriminator="kind")],
    BeforeValidator(_table),
]
