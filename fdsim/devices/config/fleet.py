"""The `[[fleet]]` tables of a scenario: groups of similar devices."""

from __future__ import annotations

from functools import cached_property
from statistics import NormalDist
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field, PositiveInt, model_validator

from fdsim.catalogue import Chosen, Table, merge
from fdsim.devices.config.outages import Crash
from fdsim.devices.config.profiles import profile
from fdsim.devices.models.battery import Battery, Flow, Pack
from fdsim.devices.models.compute import Compute
from fdsim.devices.models.connectivity import Connectivity
from fdsim.devices.models.habits import Habits
from fdsim.devices.models.usage import Usage
from fdsim.errors import InputError

Watts = Annotated[float, Field(ge=0, le=2000)]
Soc = Annotated[float, Field(ge=0, le=1)]


#: Devices that differ in what they draw come in so many kinds, equally often: few enough that what is worked out for
#: one load serves many devices.
_POWER_KINDS = 8


class Power(Table):
    """What a device draws besides its radio, W."""

    idle_w: Watts = Field(description="drawn whenever the device is on")
    screen_w: Watts = Field(description="added while the screen is on")
    train_w: Watts = Field(description="added while it trains")
    device_ln_sd: float = Field(
        default=0.0,
        ge=0,
        le=2,
        description="spread between devices of ln(idle_w and screen_w), around the mean, in eight steps",
    )

    @cached_property
    def kinds(self) -> tuple[Power, ...]:
        """What devices of each kind draw; as much as `idle_w` and `screen_w` on average."""
        normal = NormalDist()
        z = np.array([normal.inv_cdf((k + 0.5) / _POWER_KINDS) for k in range(_POWER_KINDS)])
        factors = np.exp(self.device_ln_sd * z / z.std())
        return tuple(
            Power(idle_w=f * self.idle_w, screen_w=f * self.screen_w, train_w=self.train_w)
            for f in (factors / factors.mean()).tolist()
        )

    def of_device(self, rng: np.random.Generator) -> Power:
        """Draw what one device draws; without a spread nothing is drawn from `rng`."""
        return self if self.device_ln_sd == 0.0 else self.kinds[int(_POWER_KINDS * rng.random())]


class Drain(NamedTuple):
    """A battery and what a device draws from it."""

    battery: Battery
    power: Power

    def soc_after(self, soc: float, time_s: float, *, lit_frac: float, plugged: bool) -> float:
        """Return what a state of charge becomes after some time with the screen on for a share of it."""
        full_j = self.battery.full_j(0.0)
        flow = Flow(self.power.idle_w + lit_frac * self.power.screen_w, plugged, full_j)
        return self.battery.after(soc * full_j, time_s, flow) / full_j


class Radio(Table):
    """What a device's radio adds while it transfers, W."""

    wifi_tx_w: Watts = Field(description="added while uploading over Wi-Fi, W")
    wifi_rx_w: Watts = Field(description="added while downloading over Wi-Fi, W")
    cellular_tx_w: Watts = Field(default=0.0, description="added while uploading over cellular, W")
    cellular_rx_w: Watts = Field(default=0.0, description="added while downloading over cellular, W")


class DeviceGroup(Table):
    """One `[[fleet]]` entry: `count` devices of a profile, any field of which may be overridden.

    Devices are numbered over the groups in the order of the file; client k owns device k.
    """

    profile: str = Field(
        default="midrange_phone",
        description="the profile that the fields below default to: a name from `fdsim list profiles`, or a .toml file such as "
        "`fdsim fleet fit` writes, seen from the folder in which fdsim is called",
    )
    count: PositiveInt = Field(description="number of devices")
    battery: Annotated[Battery, Chosen("battery")] = Field(
        description="capacity and charging; by default the profile's"
    )
    connectivity: Annotated[Connectivity, Chosen("connectivity")] = Field(
        description="when the device is on which network, and how fast; by default the profile's"
    )
    usage: Annotated[Usage, Chosen("usage")] = Field(
        description="when its screen is on and its charger plugged in; by default the profile's"
    )
    compute: Annotated[Compute, Chosen("compute")] = Field(
        description="how fast it trains; by default the profile's"
    )
    power: Power = Field(description="what it draws besides its radio; by default the profile's")
    radio: Radio = Field(description="what its radio draws; by default the profile's")
    initial_soc: tuple[Soc, Soc] | Literal["usual"] = Field(
        default=(0.2, 1.0),
        description="state of charge at the start, uniform between these two; or 'usual', what the day before has led to, "
        "with usage 'habits' (else as 0.2 to 1)",
    )
    low_soc: Soc = Field(default=0.15, description="below this state of charge the device takes no work")
    boot_soc: Soc = Field(default=0.03, description="an empty device boots when charged to this")
    handshakes: int = Field(default=3, ge=0, le=100, description="round trips before a transfer's first byte")
    site: str = Field(
        default="", description="the place whose power and Wi-Fi these devices use, for [[outages]]"
    )
    cell: str = Field(
        default="", description="the cell that serves these devices, for [[cells]] and [[outages]]"
    )
    habits: Habits | None = Field(
        default=None, description="the hours of the owners, for models that look at them"
    )
    crash: Crash | None = Field(default=None, description="software crashes; by default none")

    @model_validator(mode="before")
    @classmethod
    def _start_from_profile(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        name = value.get("profile", "midrange_phone")
        try:
            base = profile(str(name))
        except InputError as error:
            raise ValueError(error.problem) from None
        # A component that is already built stands for itself; tables are laid over the profile's.
        return merge(base, value)

    @property
    def soc_range(self) -> tuple[float, float]:
        """Between which states of charge a device begins, unless its usage model knows better."""
        return (0.2, 1.0) if self.initial_soc == "usual" else self.initial_soc

    @model_validator(mode="after")
    def _possible(self) -> DeviceGroup:
        low, high = self.soc_range
        if low > high:
            raise ValueError(f"initial_soc = [{low}, {high}] must be [lowest, highest]")
        if self.boot_soc == 0.0 and isinstance(self.battery, Pack):
            # On a charger weaker than its load it would boot and die again without any time passing.
            raise ValueError("boot_soc = 0 must be above 0: an empty battery boots nothing. Try 0.03")
        return self
