"""The owner of a device: hours of sleep and of going out that are the owner's own and come back the next day.

A `Habits` table describes a group of owners. An `Owner` is one of them: it knows at any time where the owner is and
whether he sleeps, and link, charger and screen of the device all look at the same owner. That is what couples them:
at home there is the Wi-Fi and the charger, and asleep nobody looks at the screen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Literal, NamedTuple, Protocol

import numpy as np
from pydantic import Field

from fdsim.catalogue import Table
from fdsim.devices.models.spells import BLOCK, DAY_S, HOUR_S

Place = Literal["home", "way", "work"]
Frac = Annotated[float, Field(ge=0, le=1)]
#: No hour is further from its mean than this many standard deviations, which keeps a day in its order.
_MOST_SD = 2.5


class Situation(NamedTuple):
    """Where an owner is, whether he sleeps, and until when, s."""

    place: Place
    asleep: bool
    until_s: float


class Night(NamedTuple):
    """From going to sleep to getting up, s."""

    bed_s: float
    wake_s: float


class Habits(Table):
    """The hours of a group's owners, in the owner's own time. Day 0 is a Monday."""

    sleep_hour: float = Field(
        default=24.0, ge=20, le=28, description="mean hour of going to sleep; 25 is 1 am"
    )
    wake_hour: float = Field(default=7.0, ge=4, le=12, description="mean hour of getting up")
    leave_hour: float = Field(default=9.0, ge=5, le=16, description="mean hour of leaving home")
    return_hour: float = Field(default=17.5, ge=9, le=23, description="mean hour of coming home")
    own_sd_h: float = Field(
        default=1.0, ge=0, le=6, description="spread between owners: the whole day is earlier or later, h"
    )
    day_sd_h: float = Field(default=0.7, ge=0, le=2, description="spread of each hour from day to day, h")
    weekend_later_h: float = Field(
        default=1.0, ge=-3, le=4, description="how much later an owner gets up and sleeps at weekends, h"
    )
    out_weekday_frac: Frac = Field(default=0.7, description="share of weekdays on which an owner goes out")
    out_weekend_frac: Frac = Field(
        default=0.4, description="share of weekend days on which an owner goes out"
    )
    out_ln_sd: float = Field(
        default=1.0, ge=0, le=6, description="spread between owners of the ln odds of going out"
    )
    shared_frac: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="how much of what distinguishes owners is one thing: who is on Wi-Fi more also charges more "
        "(correlation 0..1)",
    )
    way_h: float = Field(default=0.5, gt=0, le=2, description="time on the way, there and back each, h")
    zone_spread_h: float = Field(
        default=0.0,
        ge=0,
        le=12,
        description="clocks of devices are up to so many hours earlier or later; 12 for all time zones",
    )


class Owner:
    """One owner: asked for times that never run back."""

    __slots__ = ("_days", "_homely", "_now", "_shared_frac", "last_night", "shift_s")

    def __init__(self, habits: Habits, rng: np.random.Generator) -> None:
        zone_h = habits.zone_spread_h * float(rng.uniform(-1.0, 1.0))
        early_h = -habits.own_sd_h * _bounded(float(rng.standard_normal()))
        #: What to add to the simulated time for the owner's own time; a week more, so that it is never negative.
        self.shift_s = 7 * DAY_S + (zone_h + early_h) * HOUR_S
        self._homely, self._shared_frac = float(rng.standard_normal()), habits.shared_frac
        self._days = _days(habits, self.shift_s, rng)
        now, night = next(self._days), Night(-math.inf, 0.0)
        while now.until_s <= 0.0:
            since_s, now = now.until_s, next(self._days)
            if now.asleep:
                night = Night(since_s, now.until_s)
        #: The latest night that began before time 0, for models that have to know what went before.
        self.last_night = night
        self._now = now

    def leaning(self, rng: np.random.Generator) -> float:
        """Draw how far the owner is from the average in one respect, in standard deviations, partly as in all others."""
        own = math.sqrt(1.0 - self._shared_frac**2) * float(rng.standard_normal())
        return self._shared_frac * self._homely + own

    def at(self, t_s: float) -> Situation:
        """Return the owner's situation at a time; `t_s` must not run back."""
        now = self._now
        while now.until_s <= t_s:
            now = self._now = next(self._days)
        return now


class Phone(Protocol):
    """What a model may see of the device whose spells it gives: its state when a spell begins."""

    @property
    def t_s(self) -> float:
        """The time of the latest change of what moves the charge, s."""

    @property
    def soc(self) -> float:
        """State of charge, 0..1."""

    @property
    def on_charger(self) -> bool:
        """Whether the charger is in."""

    @property
    def screen_on(self) -> bool:
        """Whether the screen is on."""

    @property
    def owner(self) -> Owner:
        """Who uses the device."""

    def soc_after(self, soc: float, time_s: float, *, lit_frac: float, plugged: bool) -> float:
        """Return what a state of charge becomes after some time with the screen on for a share of it."""

    def begin_at(self, soc: float) -> None:
        """Let the device begin with a state of charge, if its group leaves that to how it is used."""


def _bounded(z: float) -> float:
    return max(-_MOST_SD, min(_MOST_SD, z))


def _days(habits: Habits, shift_s: float, rng: np.random.Generator) -> Iterator[Situation]:
    """Yield what an owner does one after the other, from a night before time 0 on."""
    own = habits.out_ln_sd * float(rng.standard_normal())
    out_frac = [_tilted(frac, own) for frac in (habits.out_weekday_frac, habits.out_weekend_frac)]
    day = math.floor(shift_s / DAY_S) - 1
    while True:
        for wake, leave, back, sleep, luck in _luck(rng):
            weekend = day % 7 >= 5
            later_h = habits.weekend_later_h if weekend else 0.0
            # The owner's midnight of this day on the simulated clock.
            midnight_s = day * DAY_S - shift_s
            wake_s = midnight_s + (habits.wake_hour + later_h + habits.day_sd_h * wake) * HOUR_S
            sleep_s = midnight_s + (habits.sleep_hour + later_h + habits.day_sd_h * sleep) * HOUR_S
            yield Situation("home", True, wake_s)
            if luck < out_frac[weekend]:
                way_s = habits.way_h * HOUR_S
                leave_s = midnight_s + (habits.leave_hour + later_h + habits.day_sd_h * leave) * HOUR_S
                back_s = midnight_s + (habits.return_hour + habits.day_sd_h * back) * HOUR_S
                leave_s = max(leave_s, wake_s + 0.25 * HOUR_S)
                back_s = min(max(back_s, leave_s + 3 * way_s), sleep_s - 0.25 * HOUR_S)
                if back_s > leave_s + 2 * way_s:
                    yield Situation("home", False, leave_s)
                    yield Situation("way", False, leave_s + way_s)
                    yield Situation("work", False, back_s - way_s)
                    yield Situation("way", False, back_s)
            yield Situation("home", False, sleep_s)
            day += 1


def _luck(rng: np.random.Generator) -> Iterator[tuple[float, float, float, float, float]]:
    z = np.clip(rng.standard_normal((BLOCK, 4)), -_MOST_SD, _MOST_SD)
    yield from zip(*z.T.tolist(), rng.random(BLOCK).tolist(), strict=True)


def _tilted(frac: float, ln_odds: float) -> float:
    """A share whose odds are exp(`ln_odds`) times those of `frac`; 0 and 1 stay what they are."""
    if frac in (0.0, 1.0):
        return frac
    return 1.0 / (1.0 + (1.0 - frac) / frac * math.exp(-ln_odds))
