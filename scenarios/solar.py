"""A user-defined usage model: the sun, which charges by day unless it is cloudy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pydantic import Field

from fdsim.devices.models.habits import Phone
from fdsim.devices.models.spells import Switch
from fdsim.devices.models.usage import Usage

HOUR_S = 3600.0


class Sun(Usage):
    """Charges from sunrise to sunset, except on a device's cloudy days, when there are two hours of sun at noon."""

    sunrise_hour: float = Field(7.0, ge=0, lt=12)
    sunset_hour: float = Field(18.0, gt=12, lt=24)
    cloudy_frac: float = Field(0.3, ge=0, le=1, description="fraction of a device's days that are cloudy")

    def screen(self, rng: np.random.Generator, phone: Phone) -> Iterator[Switch]:
        """Keep the screen off: sensors have none."""
        yield Switch(False, float("inf"))

    def charger(self, rng: np.random.Generator, phone: Phone) -> Iterator[Switch]:
        """Yield dark, light and dark for each day."""
        while True:
            cloudy = rng.random() < self.cloudy_frac
            rise, fall = (11.0, 13.0) if cloudy else (self.sunrise_hour, self.sunset_hour)
            yield Switch(False, rise * HOUR_S)
            yield Switch(True, (fall - rise) * HOUR_S)
            yield Switch(False, (24.0 - fall) * HOUR_S)
