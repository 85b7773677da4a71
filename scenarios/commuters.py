"""A user-defined link model: commuters lose their link in a tunnel, once in the morning and once in the evening."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pydantic import Field, PositiveFloat

from fdsim.devices.models.connectivity import Connectivity, Spell

HOUR_S = 3600.0


class Commuter(Connectivity):
    """Online except for one tunnel each morning and each evening."""

    tunnel_s: PositiveFloat = Field(1200.0, description="time in the tunnel, s")
    morning_hour: float = Field(8.0, ge=0, lt=12, description="hour at which most go to work")
    evening_hour: float = Field(18.0, ge=12, lt=22, description="hour at which most go home")
    spread_s: float = Field(900.0, ge=0, le=3600, description="spread of the commuters' hours, s")

    def spells(self, rng: np.random.Generator) -> Iterator[Spell]:
        """Yield the spells of each day: home, tunnel, work, tunnel, home."""
        late_s = rng.uniform(0.0, self.spread_s) if self.spread_s else 0.0
        starts_s = (self.morning_hour * HOUR_S + late_s, self.evening_hour * HOUR_S + late_s)
        yield Spell(online=True, length_s=starts_s[0])
        while True:
            yield Spell(online=False, length_s=self.tunnel_s)
            yield Spell(online=True, length_s=starts_s[1] - starts_s[0] - self.tunnel_s)
            yield Spell(online=False, length_s=self.tunnel_s)
            yield Spell(online=True, length_s=24 * HOUR_S - (starts_s[1] - starts_s[0]) - self.tunnel_s)
