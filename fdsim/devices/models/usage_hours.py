"""Usage models by the hour of the day: screen sessions and plug-in habits that follow a clock."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated

import numpy as np
from pydantic import Field

from fdsim.devices.models.habits import Phone
from fdsim.devices.models.spells import BLOCK, DAY_S, HOUR_S, PART_OF_HOUR, Lengths, Switch, normals
from fdsim.devices.models.usage import Usage

Frac = Annotated[float, Field(ge=0, lt=1)]
ByHour = Annotated[tuple[float, ...], Field(min_length=24, max_length=24)]

_DAY = (0.05,) * 6 + (0.15, 0.25) + (0.3,) * 10 + (0.35,) * 4 + (0.25, 0.15)
_PLUG_IN = (0.02,) * 6 + (0.03,) * 6 + (0.06,) * 6 + (0.07,) * 4 + (0.04, 0.03)


def wait_by_hour(t_s: float, per_hour: tuple[float, ...], threshold: float) -> float:
    """Return the time until the next event of a Poisson process whose rate changes with the hour of the day.

    `per_hour` is the mean number of events in each hour, `threshold` a standard exponential number: the event
    comes when the rate, summed up from now, reaches it.
    """
    if not any(per_hour):
        return math.inf
    start_s = t_s
    while True:
        rate = per_hour[int(t_s % DAY_S // HOUR_S)] / HOUR_S
        left_s = HOUR_S - t_s % HOUR_S
        if threshold < rate * left_s:
            return t_s + threshold / rate - start_s
        threshold -= rate * left_s
        t_s += left_s


def exponentials(rng: np.random.Generator) -> Iterator[float]:
    """Yield standard exponential numbers for ever, drawn in blocks."""
    while True:
        yield from rng.standard_exponential(BLOCK).tolist()


class Hourly(Usage):
    """Screen sessions and plug-ins at rates that follow the hour of the day."""

    screen_on_frac: ByHour = Field(
        default=_DAY, description="fraction of each hour 0..23 in which the screen is on"
    )
    screen_session: Lengths = Field(
        Lengths(median_s=60.0, ln_sd=1.3), description="lengths of the spells with the screen on"
    )
    plug_in_weight: ByHour = Field(
        default=_PLUG_IN, description="how the day's plug-ins fall on the hours 0..23"
    )
    plug_ins_per_day: float = Field(
        default=2.3, gt=0, le=100, description="mean number of charging sessions a day"
    )
    charge: Lengths = Field(
        Lengths(median_s=3361.0, ln_sd=1.39), description="lengths of the spells plugged in"
    )

    def model_post_init(self, _context: object) -> None:
        """Refuse impossible fractions and weights."""
        if not all(0 <= frac < 1 for frac in self.screen_on_frac):
            raise ValueError("screen_on_frac must lie in [0, 1) for every hour")
        if min(self.plug_in_weight) < 0 or sum(self.plug_in_weight) <= 0:
            raise ValueError("plug_in_weight must not be negative, and some hour must have a weight")

    def screen(self, rng: np.random.Generator, phone: Phone) -> Iterator[Switch]:
        """Yield sessions of lognormal length, begun at the rate that gives each hour its fraction."""
        means = [self.screen_session.mean_s(part) for part in range(4)]
        mean_s = sum(means) / 4
        # Renewal: frac on = mean / (mean + wait), so the rate of starts while off is frac / (1 − frac) / mean.
        starts = tuple(frac / (1.0 - frac) * HOUR_S / mean_s for frac in self.screen_on_frac)
        return _sessions(starts, self.screen_session, rng)

    def charger(self, rng: np.random.Generator, phone: Phone) -> Iterator[Switch]:
        """Yield sessions of lognormal length, begun in the hours people plug in."""
        total = sum(self.plug_in_weight)
        starts = tuple(self.plug_ins_per_day * weight / total for weight in self.plug_in_weight)
        return _sessions(starts, self.charge, rng)


def _sessions(starts: tuple[float, ...], length: Lengths, rng: np.random.Generator) -> Iterator[Switch]:
    luck, waits, t_s = normals(rng), exponentials(rng), 0.0
    while True:
        wait_s = wait_by_hour(t_s, starts, next(waits))
        yield Switch(False, wait_s)
        t_s += wait_s
        mean, sd = length.ln[PART_OF_HOUR[int(t_s % DAY_S // HOUR_S)]]
        length_s = math.exp(mean + sd * next(luck))
        yield Switch(True, length_s)
        t_s += length_s


class Nightly(Hourly):
    """Most owners charge all night long, and by day like `hourly`; the others only like `hourly`."""

    nightly_frac: float = Field(
        default=0.8, ge=0, le=1, description="fraction of owners who charge overnight"
    )
    plug_in_hour: float = Field(default=22.5, ge=18, lt=30, description="mean hour of plugging in")
    plug_in_sd_h: float = Field(default=1.2, ge=0, le=3, description="its standard deviation, h")
    unplug_hour: float = Field(default=7.0, ge=3, lt=12, description="mean hour of unplugging, next morning")
    unplug_sd_h: float = Field(default=1.0, ge=0, le=2, description="its standard deviation, h")

    def charger(self, rng: np.random.Generator, phone: Phone) -> Iterator[Switch]:
        """Yield spells that are in from evening to morning, and now and then by day."""
        by_day = super().charger(rng, phone)
        return self._nights(rng, by_day) if rng.random() < self.nightly_frac else by_day

    def _nights(self, rng: np.random.Generator, by_day: Iterator[Switch]) -> Iterator[Switch]:
        # The night before day 0 is still going on at midnight.
        t_s, day = 0.0, -1
        day_on, day_until_s = False, 0.0
        while True:
            # Three deviations at most keep one night from reaching into the next.
            wobble_in, wobble_out = np.clip(rng.standard_normal(2), -3, 3).tolist()
            start_s = day * DAY_S + (self.plug_in_hour + self.plug_in_sd_h * wobble_in) * HOUR_S
            end_s = (day + 1) * DAY_S + (self.unplug_hour + self.unplug_sd_h * wobble_out) * HOUR_S
            while t_s < start_s:
                while day_until_s <= t_s:
                    day_on, length_s = next(by_day)
                    day_until_s += length_s
                until_s = min(day_until_s, start_s)
                yield Switch(day_on, until_s - t_s)
                t_s = until_s
            if end_s > t_s:
                yield Switch(True, end_s - t_s)
                t_s = end_s
            day += 1
