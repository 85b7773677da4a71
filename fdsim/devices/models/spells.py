"""Alternating spells: how long a thing stays on and off, by the part of the day in which the spell starts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from statistics import NormalDist
from typing import Annotated, Any, NamedTuple, Protocol

import numpy as np
from pydantic import BeforeValidator, Field

from fdsim.catalogue import Table

DAY_S = 86_400.0
HOUR_S = 3_600.0

#: Night is 23–06 h, morning 06–12 h, afternoon 12–18 h, evening 18–23 h; hour of day → index of its part.
PART_OF_HOUR = (0,) * 6 + (1,) * 6 + (2,) * 6 + (3,) * 5 + (0,)
PARTS = ("night", "morning", "afternoon", "evening")

_HOURS = tuple(PART_OF_HOUR.count(part) for part in range(4))
_STANDARD = NormalDist()
_PART_END_S = tuple(next(end for end in (6, 12, 18, 23, 24) if end > hour) * HOUR_S for hour in range(24))

#: Random numbers are drawn this many at a time: one call of numpy costs as much as thirty numbers.
BLOCK = 16


class Switch(NamedTuple):
    """A spell during which something is on or off, and how long it lasts."""

    on: bool
    length_s: float


def _four(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (value,) * 4
    return value


ByPart = Annotated[tuple[float, float, float, float], BeforeValidator(_four)]


class Lengths(Table):
    """Lognormal lengths of spells: one number, or four for night, morning, afternoon and evening.

    The part of the day is that in which the spell starts.
    """

    median_s: ByPart = Field(description="median length, s; one number or one per part of the day")
    ln_sd: ByPart = Field(default=(0.0,) * 4, description="standard deviation of ln(length), likewise")

    def model_post_init(self, _context: Any) -> None:
        """Refuse impossible lengths."""
        if min(self.median_s) <= 0:
            raise ValueError(f"median_s must be above 0 s, not {min(self.median_s)}")
        if min(self.ln_sd) < 0:
            raise ValueError(f"ln_sd must not be negative, not {min(self.ln_sd)}")

    @cached_property
    def ln(self) -> tuple[tuple[float, float], ...]:
        """(mean, standard deviation) of ln(seconds), for each part of the day."""
        return tuple((math.log(m), sd) for m, sd in zip(self.median_s, self.ln_sd, strict=True))

    def mean_s(self, part: int = 0) -> float:
        """Return the mean length of a spell that starts in a part of the day."""
        return self.median_s[part] * math.exp(self.ln_sd[part] ** 2 / 2)

    def mean_up_to_s(self, most_s: float, part: int = 0) -> float:
        """Return the mean length of a spell that starts in a part of the day and is cut after some time."""
        return _mean_up_to(most_s, *self.ln[part])

    def mean_within_day_s(self, stretch: float = 0.0) -> float:
        """Return the mean length over all parts of the day of spells that are exp(`stretch`) times as long, cut after a day."""
        return (
            sum(
                hours * _mean_up_to(DAY_S, m + stretch, sd)
                for hours, (m, sd) in zip(_HOURS, self.ln, strict=True)
            )
            / 24
        )


def _mean_up_to(most: float, mean: float, sd: float) -> float:
    """Mean of min(L, most) for a lognormal L: that of L below `most`, and `most` for the rest."""
    if sd == 0.0:
        return min(most, math.exp(mean))
    z = (math.log(most) - mean) / sd
    return math.exp(mean + sd * sd / 2) * _STANDARD.cdf(z - sd) + most * (1.0 - _STANDARD.cdf(z))


def normals(rng: np.random.Generator) -> Iterator[float]:
    """Yield standard normal numbers for ever, drawn in blocks."""
    while True:
        yield from rng.standard_normal(BLOCK).tolist()


def part_of_day(t_s: float) -> tuple[int, float]:
    """Return (the index of the part of the day that a time lies in, when to ask again)."""
    of_day_s = t_s % DAY_S
    hour = int(of_day_s // HOUR_S)
    return PART_OF_HOUR[hour], t_s - of_day_s + _PART_END_S[hour]


class OnCharger(Protocol):
    """Anything that may be on a charger."""

    @property
    def on_charger(self) -> bool:
        """Whether it is."""


class Calm(NamedTuple):
    """Off spells that start while a device is on its charger are longer: by exp(`ln_factor`)."""

    phone: OnCharger
    ln_factor: float


def alternate(
    on: Lengths, off: Lengths, rng: np.random.Generator, *, tilt: float = 0.0, calm: Calm | None = None
) -> Iterator[Switch]:
    """Yield on and off spells from midnight of day 0 for ever, as a semi-Markov process.

    `tilt` is a device's own propensity: its on spells are longer by exp(tilt/2) and its off spells shorter by
    as much. The process starts in equilibrium: the first spell is one met at a random moment, so long spells
    are met more often.
    """
    # The lengths belong to the group; what is a device's own is a few numbers, since there may be very many devices.
    stretch, on_ln, off_ln = tilt / 2, on.ln, off.ln
    (on_mean, on_sd), (off_mean, off_sd) = on_ln[0], off_ln[0]
    on_mean, off_mean = on_mean + stretch, off_mean - stretch
    on_frac = 1 / (1 + math.exp(off_mean + off_sd**2 / 2 - on_mean - on_sd**2 / 2))
    is_on = bool(rng.random() < on_frac)
    mean, sd = (on_mean, on_sd) if is_on else (off_mean, off_sd)
    # Length-biased lognormal: ln L ~ N(mean + sd², sd²); a random moment lies anywhere in it.
    t_s = float((1.0 - rng.random()) * math.exp(mean + sd * sd + sd * rng.standard_normal()))
    yield Switch(is_on, t_s)
    # A named tuple made through its base costs a third of one made through its name.
    exp, make = math.exp, tuple.__new__
    part, part_until_s = part_of_day(t_s)
    while True:
        for z in rng.standard_normal(BLOCK).tolist():
            is_on = not is_on
            if t_s >= part_until_s:
                part, part_until_s = part_of_day(t_s)
            if is_on:
                mean, sd = on_ln[part]
                length_s = exp(mean + stretch + sd * z)
            else:
                mean, sd = off_ln[part]
                calmer = calm.ln_factor if calm is not None and calm.phone.on_charger else 0.0
                length_s = exp(mean - stretch + calmer + sd * z)
            t_s += length_s
            yield make(Switch, (is_on, length_s))
