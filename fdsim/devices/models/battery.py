"""Battery models: how the charge follows from load and charger. Stateless; the device owns the charge.

A battery model answers two questions about a charge in joules under a constant `Flow`: what it is after some time,
and when it will reach a level. Both are closed forms, so no device ever polls its battery.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import lru_cache
from typing import ClassVar, NamedTuple, Protocol

from pydantic import Field, field_validator

from fdsim.catalogue import Component

WH_J = 3_600.0
INF = math.inf


class Flow(NamedTuple):
    """What acts on a battery until something changes."""

    load_w: float
    plugged: bool
    full_j: float
    """Charge of the full battery, J, at its present age."""


class Readings(Protocol):
    """A state of charge that was measured, over the simulated time."""

    def soc_at(self, t_s: float) -> float:
        """Return the state of charge at a time."""

    def next_crossing(self, t_s: float, soc: float) -> float:
        """Return when the state of charge next falls below a level, or rises to it; inf for never."""


class Battery(Component):
    """A battery model."""

    family: ClassVar[str] = "battery"

    def readings(self, client: int, seed: int) -> Readings | None:
        """Return what one device's charge follows whatever its load, or None if the charge is simulated."""
        return None

    @abstractmethod
    def full_j(self, throughput_j: float) -> float:
        """Return the charge of the full battery, J, after `throughput_j` have been charged into it since the start."""

    @abstractmethod
    def after(self, charge_j: float, time_s: float, flow: Flow) -> float:
        """Return the charge after some time, J, between 0 and full."""

    @abstractmethod
    def time_to_level(self, charge_j: float, level_j: float, flow: Flow) -> float:
        """Return the seconds until the charge reaches a level from where it is, or inf if it never does."""


class Mains(Battery):
    """No battery: the device runs on mains power and never runs out."""

    def full_j(self, throughput_j: float) -> float:
        """Return one joule, which stands for a full battery, so that the state of charge is 1."""
        return 1.0

    def after(self, charge_j: float, time_s: float, flow: Flow) -> float:
        """Return the same charge: it is always full."""
        return charge_j

    def time_to_level(self, charge_j: float, level_j: float, flow: Flow) -> float:
        """Return inf: the charge never changes."""
        return 0.0 if charge_j == level_j else INF


class Pack(Battery):
    """A battery that stores energy: it has a capacity and a charger."""

    capacity_wh: float = Field(gt=0, le=1000, description="energy of the full new battery, Wh")
    charge_w: float = Field(gt=0, le=500, description="power of the charger below the taper, W")
    charge_efficiency_frac: float = Field(
        default=1.0, gt=0, le=1, description="fraction of the charger's power that is stored"
    )

    @field_validator("capacity_wh")
    @classmethod
    def _plausible(cls, value: float) -> float:
        if value > 200:
            raise ValueError(
                f"{value} Wh is no phone, tablet or laptop; mAh are not Wh (4000 mAh at 3.85 V are 15.4 Wh)"
            )
        return value

    def full_j(self, throughput_j: float) -> float:
        """Return the capacity, which does not age here."""
        return self.capacity_wh * WH_J


class Linear(Pack):
    """An ideal battery: charging at constant power until full."""

    def after(self, charge_j: float, time_s: float, flow: Flow) -> float:
        """Follow a straight line between empty and full."""
        load_w, plugged, full_j = flow
        net_w = self.charge_w * self.charge_efficiency_frac - load_w if plugged else -load_w
        charge_j += net_w * time_s
        return 0.0 if charge_j < 0.0 else full_j if charge_j > full_j else charge_j

    def time_to_level(self, charge_j: float, level_j: float, flow: Flow) -> float:
        """Return distance over slope, if the slope points there."""
        load_w, plugged, full_j = flow
        way_j = level_j - charge_j
        if way_j == 0.0:
            return 0.0
        net_w = self.charge_w * self.charge_efficiency_frac - load_w if plugged else -load_w
        if level_j > full_j or net_w == 0.0 or (way_j > 0.0) != (net_w > 0.0):
            return INF
        return way_j / net_w


class Tapered(Pack):
    """A lithium battery: full power up to 80 %, then falling linearly with the charge down to a floor."""

    charge_efficiency_frac: float = Field(
        default=0.9, gt=0, le=1, description="fraction of the charger's power that is stored"
    )
    taper_soc: float = Field(
        default=0.8, gt=0, lt=1, description="state of charge from which charging slows down"
    )
    floor_frac: float = Field(
        default=0.05, gt=0, le=1, description="lowest charging power, as a fraction of charge_w"
    )

    def charge_power_w(self, soc: float) -> float:
        """Return the power that reaches the battery at a state of charge, W."""
        frac = 1.0 if soc <= self.taper_soc else 1.0 - (soc - self.taper_soc) / (1.0 - self.taper_soc)
        return self.charge_w * self.charge_efficiency_frac * max(frac, self.floor_frac)

    def after(self, charge_j: float, time_s: float, flow: Flow) -> float:
        """Follow a straight line when unplugged, below the taper and at the floor; an exponential between."""
        load_w, plugged, full_j = flow
        if not plugged:
            charge_j -= load_w * time_s
            return charge_j if charge_j > 0.0 else 0.0
        curve = _charging(
            self.charge_w * self.charge_efficiency_frac, self.taper_soc, self.floor_frac, full_j, load_w
        )
        if (
            charge_j < curve.taper_j
            and curve.low_w > 0.0
            and (curve.taper_j - charge_j) / curve.low_w > time_s
        ):
            # By far the most frequent: below the taper before and after.
            return charge_j + curve.low_w * time_s
        while time_s > 0.0:
            charge_j, used_s = _stretch(charge_j, time_s, curve, full_j)
            time_s -= used_s
        return charge_j

    def time_to_level(self, charge_j: float, level_j: float, flow: Flow) -> float:
        """Return the sum of the times through the straight and the exponential parts."""
        load_w, plugged, full_j = flow
        if charge_j == level_j:
            return 0.0
        if not plugged:
            return (charge_j - level_j) / load_w if load_w > 0.0 and charge_j > level_j else INF
        if level_j > full_j or (level_j < charge_j and load_w <= self.charge_power_w(charge_j / full_j)):
            return INF
        curve = _charging(
            self.charge_w * self.charge_efficiency_frac, self.taper_soc, self.floor_frac, full_j, load_w
        )
        rising = level_j > charge_j
        if rising and level_j <= curve.taper_j:
            return (level_j - charge_j) / curve.low_w if curve.low_w > 0.0 else INF
        bounds = (0.0, curve.taper_j, curve.floor_j, full_j)
        total_s = 0.0
        for part in (0, 1, 2) if rising else (2, 1, 0):
            # The stretch of the way that lies in this part of the curve.
            start_j = min(max(charge_j, bounds[part]), bounds[part + 1])
            end_j = min(max(level_j, bounds[part]), bounds[part + 1])
            if start_j == end_j:
                continue
            if part == 1:
                total_s += _exponential_time(start_j, end_j, curve.rest_j, curve.rate)
            else:
                net_w = curve.low_w if part == 0 else curve.high_w
                total_s += (end_j - start_j) / net_w if net_w != 0.0 and (net_w > 0.0) == rising else INF
        return total_s


def falls_straight(battery: Battery) -> bool:
    """Return whether an unplugged battery surely loses load × time until it is empty, so that it need not be asked.

    Known of the battery models above; a model with its own answer to either question is always asked.
    """
    model = type(battery)
    return (model.after, model.time_to_level) in (
        (Linear.after, Linear.time_to_level),
        (Tapered.after, Tapered.time_to_level),
    )


class _Charging(NamedTuple):
    """A tapered battery on its charger under one load: three parts of the charge, each with its own form."""

    taper_j: float
    """Where the taper begins."""
    floor_j: float
    """Where it meets the floor."""
    low_w: float
    """What charges the battery below the taper; negative when the load takes more than the charger gives."""
    high_w: float
    """What charges it above the floor."""
    rate: float
    """Between: d(charge)/dt = rate · (rest − charge), an exponential towards `rest`."""
    rest_j: float


@lru_cache(maxsize=4096)
def _charging(peak_w: float, taper_soc: float, floor_frac: float, full_j: float, load_w: float) -> _Charging:
    # Devices of a group meet the same few loads again and again.
    taper_j = taper_soc * full_j
    rate = peak_w / (full_j - taper_j)
    return _Charging(
        taper_j=taper_j,
        floor_j=taper_j + (1.0 - floor_frac) * (full_j - taper_j),
        low_w=peak_w - load_w,
        high_w=peak_w * floor_frac - load_w,
        rate=rate,
        rest_j=full_j - load_w / rate,
    )


def _stretch(charge_j: float, time_s: float, curve: _Charging, full_j: float) -> tuple[float, float]:
    """Follow the curve until the time is over or its form changes; return (charge, time used)."""
    taper_j, floor_j, low_w, high_w, rate, rest_j = curve
    if charge_j < taper_j or (charge_j == taper_j and low_w <= 0.0):
        return _line(charge_j, time_s, low_w, 0.0, taper_j)
    if charge_j > floor_j or (charge_j == floor_j and high_w >= 0.0):
        return _line(charge_j, time_s, high_w, floor_j, full_j)
    bound_j = floor_j if rest_j > charge_j else taper_j
    bound_s = _exponential_time(charge_j, bound_j, rest_j, rate)
    if bound_s <= time_s:
        return bound_j, bound_s
    return rest_j + (charge_j - rest_j) * math.exp(-rate * time_s), time_s


def _line(charge_j: float, time_s: float, net_w: float, low_j: float, high_j: float) -> tuple[float, float]:
    """Follow a straight line until the time is over or a bound is met; at an outer bound it rests."""
    if net_w == 0.0:
        return charge_j, time_s
    bound_j = high_j if net_w > 0.0 else low_j
    bound_s = (bound_j - charge_j) / net_w
    if bound_s > time_s:
        return charge_j + net_w * time_s, time_s
    # Resting at empty or full uses up all the time; an inner bound is handed to the next region.
    return bound_j, time_s if bound_s <= 0.0 else bound_s


def _exponential_time(start_j: float, end_j: float, rest_j: float, rate: float) -> float:
    gap, left = rest_j - start_j, rest_j - end_j
    if gap == 0.0 or left / gap <= 0.0 or left / gap > 1.0:
        return INF
    return math.log(gap / left) / rate


class Ageing(Tapered):
    """A lithium battery that loses capacity with every charge that passes through it."""

    cycles: float = Field(default=0.0, ge=0, description="full charge cycles of the battery before the start")
    fade_per_cycle_frac: float = Field(
        default=0.0004,
        ge=0,
        le=0.01,
        description="capacity lost per full charge (0.0004: 80 % left after 500)",
    )

    def full_j(self, throughput_j: float) -> float:
        """Return the new capacity less the fade, never below a fifth of it."""
        new_j = self.capacity_wh * WH_J
        cycles = self.cycles + throughput_j / new_j
        return new_j * max(0.2, 1.0 - self.fade_per_cycle_frac * cycles)
