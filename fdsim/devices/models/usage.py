"""Usage models: when the screen is on and when the charger is in. Stateless; the device owns both."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from pydantic import Field

from fdsim.catalogue import Component
from fdsim.devices.models.habits import Phone
from fdsim.devices.models.spells import Calm, Lengths, Switch, alternate

INF = math.inf


class Usage(Component):
    """A usage model."""

    family: ClassVar[str] = "usage"
    #: Whether the screen's spell is drawn anew at the moment at which the device goes on or off its charger.
    screen_sees_charger: ClassVar[bool] = False

    top_up_soc: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="the owner plugs the device in when its charge falls to this; 0 for never",
    )

    top_up_to_soc: float = Field(default=0.8, gt=0, le=1, description="and unplugs it again at this charge")

    def for_device(self, client: int, seed: int) -> Usage:
        """Return the usage model of one device: this one, unless a subclass gives each device its own."""
        return self

    @abstractmethod
    def screen(self, rng: np.random.Generator, phone: Phone) -> Iterator[Switch]:
        """Yield spells of the screen from midnight of day 0; the last one lasts for ever if they end.

        A spell is asked for when it begins, and `phone` is the device at that moment.
        """

    @abstractmethod
    def charger(self, rng: np.random.Generator, phone: Phone) -> Iterator[Switch]:
        """Yield spells of the charger from midnight of day 0; the last one lasts for ever if they end."""


class Unattended(Usage):
    """A device nobody touches: the screen stays off, the charger stays in (or out)."""

    plugged: bool = Field(True, description="whether the charger is plugged in, always or never")

    def screen(self, rng: np.random.Generator, phone: Phone) -> Iterator[Switch]:
        """Yield one spell: off for ever."""
        yield Switch(False, INF)

    def charger(self, rng: np.random.Generator, phone: Phone) -> Iterator[Switch]:
        """Yield one spell: in, or out, for ever."""
        yield Switch(self.plugged, INF)


class Spells(Usage):
    """Screen and charger come and go in lognormal spells by part of the day."""

    screen_on: Lengths = Field(
        Lengths(median_s=54.0, ln_sd=2.09), description="lengths of the spells with the screen on"
    )
    screen_off: Lengths = Field(
        Lengths(median_s=87.4, ln_sd=2.29), description="lengths of the spells with the screen off"
    )
    screen_device_ln_sd: float = Field(
        default=0.0, ge=0, le=6, description="spread between devices of ln(on : off)"
    )
    plugged_calm_factor: float = Field(
        default=1.0,
        gt=0,
        le=100,
        description="screen-off spells that start while plugged in are this many times as long",
    )
    charge_on: Lengths = Field(
        Lengths(median_s=3361.0, ln_sd=1.39), description="lengths of the spells plugged in"
    )
    charge_off: Lengths = Field(
        Lengths(median_s=7864.0, ln_sd=1.79), description="lengths of the spells unplugged"
    )
    charge_device_ln_sd: float = Field(
        default=0.0, ge=0, le=6, description="spread between devices of ln(on : off)"
    )

    def screen(self, rng: np.random.Generator, phone: Phone) -> Iterator[Switch]:
        """Alternate between looking and not looking."""
        tilt = self.screen_device_ln_sd * float(rng.standard_normal())
        calm = Calm(phone, math.log(self.plugged_calm_factor)) if self.plugged_calm_factor != 1.0 else None
        return alternate(self.screen_on, self.screen_off, rng, tilt=tilt, calm=calm)

    def charger(self, rng: np.random.Generator, phone: Phone) -> Iterator[Switch]:
        """Alternate between plugged in and not."""
        tilt = self.charge_device_ln_sd * float(rng.standard_normal())
        return alternate(self.charge_on, self.charge_off, rng, tilt=tilt)
