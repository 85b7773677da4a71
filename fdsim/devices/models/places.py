"""A link that depends on where the owner is: Wi-Fi at home and at work, cellular or nothing on the way."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated

import numpy as np
from pydantic import Field

from fdsim.devices.models.connectivity import (
    CELLULAR,
    WIFI,
    Bandwidth,
    Connectivity,
    Sessions,
    Spell,
    offline,
)
from fdsim.devices.models.habits import Phone
from fdsim.devices.models.spells import DAY_S, Lengths, Switch, normals, part_of_day
from fdsim.errors import RunError
from fdsim.trace import Network

Frac = Annotated[float, Field(ge=0, le=1)]
Effect = Annotated[float, Field(ge=-20, le=20)]
#: Mean time after which an owner who was not at the screen might be at it again, s.
_LOOK_AGAIN_S = 600.0


class Places(Connectivity):
    """Wi-Fi that comes and goes in lognormal spells by part of the day and by the owner's place.

    A place makes Wi-Fi spells longer and gaps shorter: by exp(effect / 2) each, so that the odds of Wi-Fi change by
    exp(effect). When the owner changes place, the network stays what it was with the chance `roam_frac`, as for
    owners with a Wi-Fi at either end; else it is chosen anew by the odds of the new place.
    """

    wifi_on: Lengths = Field(Lengths(median_s=2465.0, ln_sd=2.06), description="lengths of the Wi-Fi spells")
    wifi_off: Lengths = Field(
        Lengths(median_s=2697.0, ln_sd=1.86), description="lengths of the gaps between them"
    )
    home_effect: Effect = Field(default=0.0, description="at home: added to ln(odds of Wi-Fi)")
    work_effect: Effect = Field(default=0.0, description="at work, or where else an owner goes: likewise")
    way_effect: Effect = Field(default=-2.0, description="on the way: likewise")
    roam_frac: Frac = Field(default=0.0, description="chance that the network stays on a change of place")
    idle_wifi_frac: Frac = Field(
        default=1.0,
        description="Wi-Fi sessions that begin with the screen off, relative to on: owners turn Wi-Fi on to use it",
    )
    cellular_frac: Frac = Field(
        default=0.6, description="share of the gaps between Wi-Fi sessions that cellular covers"
    )
    cellular_ln_sd: float = Field(
        default=0.0, ge=0, le=6, description="spread between devices of the ln odds of cellular in a gap"
    )
    no_wifi_frac: Frac = Field(default=0.0, description="share of devices that never see a Wi-Fi")
    device_ln_sd: float = Field(
        default=0.0, ge=0, le=6, description="spread between devices of ln(Wi-Fi on : off)"
    )
    wifi: Bandwidth = Field(WIFI, description="rates on Wi-Fi")
    cellular: Bandwidth = Field(CELLULAR, description="rates on cellular")

    def spells(self, rng: np.random.Generator) -> Iterator[Spell]:
        """Refuse: places belong to an owner."""
        raise RunError("connectivity 'places' needs a device with an owner")

    def follow(self, rng: np.random.Generator, phone: Phone) -> Iterator[Spell]:
        """Alternate between Wi-Fi sessions and gaps, each gap cellular or dark."""
        owner = phone.owner
        shift_s = owner.shift_s
        wifi = Sessions(self.wifi, Network.wifi, rng)
        cellular = Sessions(self.cellular, Network.cellular, rng)
        luck = normals(rng)
        without_wifi = bool(rng.random() < self.no_wifi_frac)
        tilt = self.device_ln_sd * owner.leaning(rng)
        cellular_frac = _tilted(self.cellular_frac, self.cellular_ln_sd * float(rng.standard_normal()))
        effects = {"home": self.home_effect, "work": self.work_effect, "way": self.way_effect}
        on_ln, off_ln, t_s, first = self.wifi_on.ln, self.wifi_off.ln, 0.0, True
        now, is_on, left_s, in_gap = owner.at(0.0), False, 0.0, Network.none
        if self.roam_frac > 0.0:
            first, (is_on, left_s) = False, self._at_start(rng, tilt + effects[now.place])
            if not is_on or without_wifi:
                in_gap = Network.cellular if rng.random() < cellular_frac else Network.none
        while True:
            stretch = (tilt + effects[now.place]) / 2
            if left_s <= 0.0 and not (first or is_on) and self._waits(rng, phone):
                left_s = _LOOK_AGAIN_S * float(rng.standard_exponential())
            elif left_s <= 0.0:
                part, _ = part_of_day(t_s + shift_s)
                (on_mean, on_sd), (off_mean, off_sd) = on_ln[part], off_ln[part]
                if first:
                    odds = on_mean + on_sd**2 / 2 - off_mean - off_sd**2 / 2 + 2 * stretch
                    is_on = bool(rng.random() < 1 / (1 + math.exp(-odds)))
                else:
                    is_on = not is_on
                mean, sd = (on_mean + stretch, on_sd) if is_on else (off_mean - stretch, off_sd)
                if first:
                    # Length-biased lognormal, met at a random moment, as a process in equilibrium is.
                    left_s = float(1.0 - rng.random()) * math.exp(mean + sd * sd + sd * next(luck))
                    first = False
                else:
                    left_s = math.exp(mean + sd * next(luck))
                if not is_on or without_wifi:
                    in_gap = Network.cellular if rng.random() < cellular_frac else Network.none
            # Asleep or awake is the same place, but the spell may as well be cut there.
            length_s = min(left_s, now.until_s - t_s)
            if is_on and not without_wifi:
                yield wifi.spell(length_s, next(luck))
            elif in_gap is Network.cellular:
                yield cellular.spell(length_s, next(luck))
            else:
                yield offline(length_s)
            t_s, left_s = t_s + length_s, left_s - length_s
            if t_s >= now.until_s:
                place, now = now.place, owner.at(t_s)
                if now.place != place and rng.random() >= self.roam_frac:
                    first, left_s = True, 0.0

    def _at_start(self, rng: np.random.Generator, ln_odds: float) -> Switch:
        """Draw whether a device is on Wi-Fi at midnight of day 0, and for how much longer.

        Where the network stays on many changes of place, it is that of any time of the day before, and not as the odds of the
        night alone have it; a spell that has lasted for more than a day has met a change of place that ended it.
        """
        on_s = self.wifi_on.mean_within_day_s(ln_odds / 2)
        off_s = self.wifi_off.mean_within_day_s(-ln_odds / 2)
        is_on = bool(rng.random() < on_s / (on_s + off_s))
        mean, sd = (self.wifi_on if is_on else self.wifi_off).ln[0]
        mean += ln_odds / 2 if is_on else -ln_odds / 2
        longest_s = math.exp(mean + sd * sd + sd * float(rng.standard_normal()))
        return Switch(is_on, float(1.0 - rng.random()) * min(DAY_S, longest_s))

    def _waits(self, rng: np.random.Generator, phone: Phone) -> bool:
        """Draw whether a gap that is over goes on, since nobody is at the screen to turn Wi-Fi on."""
        return self.idle_wifi_frac < 1.0 and not phone.screen_on and rng.random() >= self.idle_wifi_frac


def _tilted(frac: float, ln_odds: float) -> float:
    if frac in (0.0, 1.0):
        return frac
    return 1.0 / (1.0 + (1.0 - frac) / frac * math.exp(-ln_odds))
