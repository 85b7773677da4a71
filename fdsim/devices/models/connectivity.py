"""Link models: when a device is on which network, and how fast. Stateless; the device owns the link."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field, PositiveFloat

from fdsim.catalogue import Component, Table
from fdsim.devices.models.habits import Phone
from fdsim.devices.models.spells import DAY_S, HOUR_S, Lengths, alternate, normals
from fdsim.trace import Network

INF = math.inf
_NO_NETWORK = Network.none
Frac = Annotated[float, Field(ge=0, le=1)]


class Spell(NamedTuple):
    """A stretch of time on one network, or on none."""

    online: bool
    length_s: float
    network: Network = Network.wifi
    down_bps: float = 20e6
    up_bps: float = 8e6
    rtt_s: float = 0.03


class Connectivity(Component):
    """A link model."""

    family: ClassVar[str] = "connectivity"

    def for_device(self, client: int, seed: int) -> Connectivity:
        """Return the link model of one device: this one, unless a subclass gives each device its own."""
        return self

    def follow(self, rng: np.random.Generator, phone: Phone) -> Iterator[Spell]:
        """Yield the spells of one device; override this instead of `spells` to look at the device and its owner."""
        return self.spells(rng)

    @abstractmethod
    def spells(self, rng: np.random.Generator) -> Iterator[Spell]:
        """Yield the device's spells from midnight of day 0; the last one lasts for ever if they end."""


class Bandwidth(Table):
    """How fast a network is: lognormal between devices and between sessions, the same luck down and up."""

    down_bps: PositiveFloat = Field(description="median download rate, bit/s")
    up_bps: PositiveFloat = Field(description="median upload rate, bit/s")
    ln_sd: float = Field(
        default=1.0, ge=0, le=4, description="standard deviation of ln(rate) over devices and sessions"
    )
    session_cv: float = Field(
        default=0.4, ge=0, le=2, description="coefficient of variation between a device's sessions"
    )
    floor_bps: float = Field(default=0.0, ge=0, description="no session is slower than this, bit/s")
    rtt_s: float = Field(default=0.03, ge=0, le=10, description="round-trip time, s")

    @cached_property
    def spreads(self) -> tuple[float, float]:
        """The standard deviations of ln(rate) between and within devices; their squares add up to ln_sd²."""
        within = math.sqrt(math.log1p(self.session_cv**2))
        return math.sqrt(max(0.0, self.ln_sd**2 - within**2)), min(within, self.ln_sd)


class Sessions:
    """One device's luck with one network: draws the rates of its sessions."""

    __slots__ = ("_bandwidth", "_network", "_own", "_within")

    def __init__(self, bandwidth: Bandwidth, network: Network, rng: np.random.Generator) -> None:
        between, self._within = bandwidth.spreads
        self._own = between * float(rng.standard_normal())
        self._bandwidth, self._network = bandwidth, network

    def spell(self, length_s: float, z: float) -> Spell:
        """Return a session of some length; `z` is its standard normal luck."""
        factor, b = math.exp(self._own + self._within * z), self._bandwidth
        down_bps, up_bps, floor_bps = b.down_bps * factor, b.up_bps * factor, b.floor_bps
        # A named tuple made through its base costs a third of one made through its name.
        return tuple.__new__(
            Spell,
            (
                True,
                length_s,
                self._network,
                down_bps if down_bps > floor_bps else floor_bps,
                up_bps if up_bps > floor_bps else floor_bps,
                b.rtt_s,
            ),
        )


def offline(length_s: float) -> Spell:
    """Return a spell without any network."""
    return tuple.__new__(Spell, (False, length_s, _NO_NETWORK, 0.0, 0.0, 0.0))


WIFI = Bandwidth(down_bps=40e6, up_bps=15e6, ln_sd=1.0, rtt_s=0.02)
CELLULAR = Bandwidth(down_bps=20e6, up_bps=8e6, ln_sd=0.9, rtt_s=0.04)


class AlwaysOn(Connectivity):
    """A link that is never lost."""

    network: Literal["wifi", "cellular"] = Field("wifi", description="the network it is on")
    bandwidth: Bandwidth = Field(WIFI, description="rates of the network")

    def spells(self, rng: np.random.Generator) -> Iterator[Spell]:
        """Yield one spell for ever."""
        yield Sessions(self.bandwidth, Network[self.network], rng).spell(INF, float(rng.standard_normal()))


class OnOff(Connectivity):
    """One network that comes and goes: a semi-Markov process with lognormal spells by part of the day."""

    network: Literal["wifi", "cellular"] = Field("wifi", description="the network it is on")
    on: Lengths = Field(Lengths(median_s=3600.0, ln_sd=1.0), description="lengths of the spells online")
    off: Lengths = Field(Lengths(median_s=1800.0, ln_sd=1.0), description="lengths of the spells offline")
    device_ln_sd: float = Field(default=0.0, ge=0, le=6, description="spread between devices of ln(on : off)")
    bandwidth: Bandwidth = Field(WIFI, description="rates of the network")

    def spells(self, rng: np.random.Generator) -> Iterator[Spell]:
        """Alternate between a session and nothing."""
        sessions = Sessions(self.bandwidth, Network[self.network], rng)
        luck = normals(rng)
        tilt = self.device_ln_sd * float(rng.standard_normal())
        for is_on, length_s in alternate(self.on, self.off, rng, tilt=tilt):
            yield sessions.spell(length_s, next(luck)) if is_on else offline(length_s)


class Mobile(Connectivity):
    """A phone on Wi-Fi that comes and goes, with cellular in some of the gaps."""

    wifi_on: Lengths = Field(
        Lengths(median_s=2465.0, ln_sd=2.06), description="lengths of the spells on Wi-Fi"
    )
    wifi_off: Lengths = Field(
        Lengths(median_s=2697.0, ln_sd=1.86), description="lengths of the spells without Wi-Fi"
    )
    cellular_frac: Frac = Field(
        default=0.6, description="fraction of the gaps between Wi-Fi sessions that cellular covers"
    )
    no_wifi_frac: Frac = Field(default=0.0, description="fraction of devices that never have Wi-Fi")
    device_ln_sd: float = Field(
        default=0.0, ge=0, le=6, description="spread between devices of ln(Wi-Fi on : off)"
    )
    wifi: Bandwidth = Field(WIFI, description="rates on Wi-Fi")
    cellular: Bandwidth = Field(CELLULAR, description="rates on cellular")

    def spells(self, rng: np.random.Generator) -> Iterator[Spell]:
        """Alternate between Wi-Fi sessions and gaps, each gap cellular or dark."""
        wifi = Sessions(self.wifi, Network.wifi, rng)
        cellular = Sessions(self.cellular, Network.cellular, rng)
        luck = normals(rng)
        without_wifi = rng.random() < self.no_wifi_frac
        tilt = self.device_ln_sd * float(rng.standard_normal())
        for is_on, length_s in alternate(self.wifi_on, self.wifi_off, rng, tilt=tilt):
            if is_on and not without_wifi:
                yield wifi.spell(length_s, next(luck))
            elif rng.random() < self.cellular_frac:
                yield cellular.spell(length_s, next(luck))
            else:
                yield offline(length_s)


class HomeWifi(Connectivity):
    """A phone that is at home on Wi-Fi from evening to morning, and on the move by day."""

    leave_hour: float = Field(default=8.0, ge=4, lt=14, description="mean hour of leaving home")
    return_hour: float = Field(default=18.0, ge=14, lt=24, description="mean hour of coming home")
    hour_sd_h: float = Field(default=1.0, ge=0, le=1.3, description="standard deviation of both, h")
    home_wifi_frac: Frac = Field(default=0.9, description="fraction of the time at home that is on Wi-Fi")
    away_wifi_frac: Frac = Field(default=0.2, description="fraction of the time away that is on Wi-Fi")
    cellular_frac: Frac = Field(
        default=0.8, description="fraction of the time without Wi-Fi that cellular covers"
    )
    session_s: PositiveFloat = Field(
        default=7200.0, description="mean time until the network is drawn again, s"
    )
    wifi: Bandwidth = Field(WIFI, description="rates on Wi-Fi")
    cellular: Bandwidth = Field(CELLULAR, description="rates on cellular")

    def spells(self, rng: np.random.Generator) -> Iterator[Spell]:
        """Yield sessions of exponential length, cut where the owner leaves or comes home."""
        wifi = Sessions(self.wifi, Network.wifi, rng)
        cellular = Sessions(self.cellular, Network.cellular, rng)
        luck, t_s, at_home, day = normals(rng), 0.0, True, 0
        while True:
            hour = self.leave_hour if at_home else self.return_hour
            wobble = max(-3.0, min(3.0, next(luck)))
            end_s = max(t_s, day * DAY_S + (hour + self.hour_sd_h * wobble) * HOUR_S)
            wifi_frac = self.home_wifi_frac if at_home else self.away_wifi_frac
            while t_s < end_s:
                length_s = min(float(rng.exponential(self.session_s)), end_s - t_s)
                if length_s <= 0.0:
                    break
                if rng.random() < wifi_frac:
                    yield wifi.spell(length_s, next(luck))
                elif rng.random() < self.cellular_frac:
                    yield cellular.spell(length_s, next(luck))
                else:
                    yield offline(length_s)
                t_s += length_s
            at_home = not at_home
            day += at_home
