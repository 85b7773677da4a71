"""A charger's plug that sits loosely: contact is lost for seconds, and a charge comes in pieces."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated

import numpy as np
from pydantic import Field

from fdsim.catalogue import Table
from fdsim.devices.models.spells import Switch

Seconds = Annotated[float, Field(gt=0, le=86_400)]
Spread = Annotated[float, Field(ge=0, le=6)]


class LoosePlug(Table):
    """How often a charge is interrupted, and for how long.

    Contact is lost in `frac` of the charges, and after each time again with the chance `again_frac`, if the charge is not
    over before. How long contact holds and how long it is lost are lognormal.
    """

    frac: float = Field(ge=0, le=1, description="share of charges in which contact is lost")
    again_frac: float = Field(default=0.5, ge=0, le=0.95, description="chance that it is then lost again")
    contact_median_s: Seconds = Field(default=60.0, description="how long contact holds before it is lost, s")
    contact_ln_sd: Spread = Field(default=2.5, description="standard deviation of ln(that)")
    lost_median_s: Seconds = Field(default=10.0, description="for how long contact is lost, s")
    lost_ln_sd: Spread = Field(default=1.2, description="standard deviation of ln(that)")

    def pieces(self, charge_s: float, rng: np.random.Generator) -> Iterator[Switch]:
        """Yield the pieces of a charge and the spells without contact between them; they last `charge_s` together."""
        left_s, chance = charge_s, self.frac
        while rng.random() < chance:
            contact, lost = rng.standard_normal(2).tolist()
            on_s = self.contact_median_s * math.exp(self.contact_ln_sd * contact)
            off_s = self.lost_median_s * math.exp(self.lost_ln_sd * lost)
            if on_s + off_s >= left_s:
                break
            yield Switch(True, on_s)
            yield Switch(False, off_s)
            left_s, chance = left_s - on_s - off_s, self.again_frac
        yield Switch(True, left_s)
