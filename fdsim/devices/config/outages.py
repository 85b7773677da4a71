"""What devices have in common: outages of a site or a cell, cells that divide their bandwidth; and their crashes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Literal

import numpy as np
from pydantic import Field, PositiveFloat, model_validator

from fdsim.catalogue import Table
from fdsim.devices.models.habits import Owner, Place
from fdsim.devices.models.spells import Switch


class Outage(Table):
    """One `[[outages]]` entry: an outage that hits a site, a cell, or the whole fleet at once."""

    name: str = Field(default="outage", description="what the event log and the report call it")
    site: str = Field(
        default="", description="the site it hits; without a site or a cell it hits every device"
    )
    cell: str = Field(default="", description="the cell it hits")
    place: Place | None = Field(
        default=None, description="hits devices only while their owners are here: home, way or work"
    )
    takes: tuple[Literal["wifi", "cellular", "power"], ...] = Field(
        default=("wifi", "cellular"), description="what is unavailable while it lasts", min_length=1
    )
    every_s: PositiveFloat | None = Field(
        default=None, description="mean time from the end of one to the start of the next, s"
    )
    at_s: tuple[float, ...] = Field(default=(), description="or a list of starts, s since midnight of day 0")
    lasts_s: PositiveFloat = Field(description="length, s (the mean length if the starts are random)")

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
        """Yield spells without and with the outage in turn, from midnight of day 0."""
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

    def felt(self, spells: Iterator[Switch], owner: Owner) -> Iterator[Switch]:
        """Yield the outage's spells as a device feels them whose owner is at its place only now and then."""
        return spells if self.place is None else _while_at(self.place, spells, owner)


def _while_at(place: Place, spells: Iterator[Switch], owner: Owner) -> Iterator[Switch]:
    t_s = 0.0
    for active, length_s in spells:
        end_s = t_s + length_s
        while active and t_s < end_s:
            now = owner.at(t_s)
            until_s = min(now.until_s, end_s)
            yield Switch(now.place == place, until_s - t_s)
            t_s = until_s
        if not active:
            yield Switch(False, length_s)
            t_s = end_s


class Cell(Table):
    """One `[[cells]]` entry: a base station or hot spot whose bandwidth is divided evenly among its devices."""

    name: str = Field(min_length=1, description="what `cell` of a [[fleet]] group or an outage refers to")
    place: Place | None = Field(
        default=None,
        description="serves devices only in rounds that begin while their owners are here: home, way or work",
    )
    down_bps: PositiveFloat = Field(description="bandwidth of all downloads under the cell together, bit/s")
    up_bps: PositiveFloat = Field(description="bandwidth of all uploads under the cell together, bit/s")


class Crash(Table):
    """Software crashes of a device: it loses its work and recovers later."""

    every_s: PositiveFloat = Field(description="mean time from one recovery to the next crash, s")
    recovers_s: PositiveFloat = Field(description="mean time to recover, s")

    def spells(self, rng: np.random.Generator) -> Iterator[Switch]:
        """Yield running and crashed spells in turn, both exponential."""
        while True:
            yield Switch(False, float(rng.exponential(self.every_s)))
            yield Switch(True, float(rng.exponential(self.recovers_s)))


class Timeline:
    """A sequence of spells that several devices follow, each at its own pace; each spell is drawn once, when needed."""

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
