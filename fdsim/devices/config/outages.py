"""What devices share: outages of a site or a cell, and cells whose bandwidth is divided."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Literal

import numpy as np
from pydantic import Field, PositiveFloat, model_validator

from fdsim.catalogue import Table
from fdsim.devices.models.spells import Switch


class Outage(Table):
    """One `[[outages]]` entry: an outage that hits a site, a cell, or the whole fleet at once."""

    name: str = "outage"
    site: str = Field(default="", description="the site it hits; with no site and no cell it hits everybody")
    cell: str = Field(default="", description="the cell it hits")
    takes: tuple[Literal["wifi", "cellular", "power"], ...] = Field(
        default=("wifi", "cellular"), description="what is gone while it lasts", min_length=1
    )
    every_s: PositiveFloat | None = Field(
        default=None, description="mean time from one end to the next start, s"
    )
    at_s: tuple[float, ...] = Field(
        default=(), description="or the starts themselves, s since midnight of day 0"
    )
    lasts_s: PositiveFloat = Field(description="length, s (the mean one when the starts are random)")

    @model_validator(mode="after")
    def _one_clock(self) -> Outage:
        if (self.every_s is None) == (not self.at_s):
            raise ValueError("give either every_s (random starts) or at_s (a list of starts)")
        if self.site and self.cell:
            raise ValueError("give a site or a cell, not both")
        starts = self.at_s
        if starts and (starts[0] < 0 or any(b - a < self.lasts_s for a, b in pairwise(starts))):
            raise ValueError(
                "at_s must ascend from 0 or later, and one outage must be over before the next starts"
            )
        return self

    def spells(self, rng: np.random.Generator) -> Iterator[Switch]:
        """Yield calm and outage in turn from midnight of day 0."""
        if self.every_s is not None:
            while True:
                yield Switch(False, float(rng.exponential(self.every_s)))
                yield Switch(True, float(rng.exponential(self.lasts_s)))
        t_s = 0.0
        for start_s in self.at_s:
            if start_s > t_s:
                yield Switch(False, start_s - t_s)
            yield Switch(True, self.lasts_s)
            t_s = start_s + self.lasts_s
        yield Switch(False, float("inf"))


class Cell(Table):
    """One `[[cells]]` entry: a base station or hot spot whose bandwidth its devices share evenly."""

    name: str = Field(min_length=1)
    down_bps: PositiveFloat = Field(description="what all downloads under the cell get together, bit/s")
    up_bps: PositiveFloat = Field(description="what all uploads under the cell get together, bit/s")


class Crash(Table):
    """Crashes of the software of a device: it loses its work and comes back later."""

    every_s: PositiveFloat = Field(description="mean time from one recovery to the next crash, s")
    recovers_s: PositiveFloat = Field(description="mean time to recover, s")

    def spells(self, rng: np.random.Generator) -> Iterator[Switch]:
        """Yield running and crashed in turn, exponential both."""
        while True:
            yield Switch(False, float(rng.exponential(self.every_s)))
            yield Switch(True, float(rng.exponential(self.recovers_s)))


class Timeline:
    """A sequence of spells that several devices follow, each at its own pace; drawn once, when needed."""

    def __init__(self, spells: Iterator[Switch]) -> None:
        self._source = spells
        self._drawn: list[Switch] = []

    def follow(self) -> Iterator[Switch]:
        """Yield the spells from the start."""
        index = 0
        while True:
            if index == len(self._drawn):
                following = next(self._source, None)
                if following is None:
                    return
                self._drawn.append(following)
            yield self._drawn[index]
            index += 1
