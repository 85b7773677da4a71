"""The charge of a device: moved by load and charger, watched for the levels at which something happens."""

from __future__ import annotations

import math
from functools import lru_cache

from fdsim.devices.config.fleet import DeviceGroup, Power, Radio
from fdsim.devices.config.server import Eligibility
from fdsim.devices.models.battery import Flow, Readings, falls_straight

INF = math.inf
#: What happens at a charge level, and the charge, J.
Level = tuple[str, float]
#: What happens at a charge level → what the event log says of it.
_EVENTS = {
    "empty": ("power", 0.0),
    "boot": ("power", 1.0),
    "top_up": ("charger", 1.0),
    "topped_up": ("charger", 0.0),
    "fallen": ("low", 1.0),
    "risen": ("low", 0.0),
}


@lru_cache(maxsize=4096)
def flow_of(load_w: float, plugged: bool, full_j: float) -> Flow:
    """Return a flow; devices of a group meet the same few again and again."""
    return Flow(load_w, plugged, full_j)


@lru_cache(maxsize=4096)
def flows_of(load_w: float, screen_w: float, plugged: bool, full_j: float) -> tuple[Flow, Flow]:
    """Return the flows with the screen off and on."""
    return Flow(load_w, plugged, full_j), Flow(load_w + screen_w, plugged, full_j)


def _heaviest_w(power: Power, radio: Radio) -> float:
    radio_w = max(radio.wifi_rx_w, radio.wifi_tx_w, radio.cellular_rx_w, radio.cellular_tx_w)
    return power.idle_w + power.screen_w + max(power.train_w, radio_w)


class BatteryState:
    """The charge of one device under the present flow, and the time at which it meets its next level."""

    __slots__ = (
        "_group",
        "_heaviest_w",
        "_idle_w",
        "_level",
        "_low_soc",
        "_okay_soc",
        "_readings",
        "_straight",
        "_top_up_soc",
        "bound_s",
        "charge_j",
        "empty",
        "floor_soc",
        "flow",
        "full_j",
        "level_s",
        "model",
        "spent_j",
        "t_s",
        "throughput_j",
        "topping_up",
    )

    flow: Flow
    _level: Level

    def __init__(
        self,
        group: DeviceGroup,
        power: Power,
        rule: Eligibility,
        soc: float,
        readings: Readings | None = None,
    ) -> None:
        self._group, self.model, self._top_up_soc = group, group.battery, group.usage.top_up_soc
        self._idle_w, self._heaviest_w = power.idle_w, _heaviest_w(power, group.radio)
        self._straight = falls_straight(group.battery)
        self._low_soc = max(rule.min_soc, group.low_soc)
        self._okay_soc = self._low_soc + rule.resume_soc_margin
        #: The state of charge below which the device takes no work: more than the lowest while paused work waits.
        self.floor_soc = self._low_soc
        self.t_s = self.spent_j = self.throughput_j = 0.0
        self.full_j = self.model.full_j(0.0)
        self.charge_j = self.full_j * (soc if readings is None else readings.soc_at(0.0))
        # A device whose battery was logged was on, whatever the level said.
        self.empty = self.charge_j <= 0.0 and readings is None
        self._readings = readings
        #: Whether the owner has plugged the device in because it was nearly empty, outside the charger's spells.
        self.topping_up = False
        self.level_s, self.bound_s = INF, -INF

    def begin_at(self, soc: float) -> None:
        """Begin with a state of charge; a battery that was logged has its own."""
        if self._readings is None:
            self.charge_j = self.full_j * soc
            self.empty = self.charge_j <= 0.0

    @property
    def low(self) -> bool:
        """Whether the charge is too low for work."""
        return self.charge_j < self.floor_soc * self.full_j

    def rest(self, resting: bool) -> bool:
        """Take no work below the lowest charge or, resting, below one that is well above; return whether that is new."""
        before_soc, self.floor_soc = self.floor_soc, self._okay_soc if resting else self._low_soc
        if self.floor_soc == before_soc:
            return False
        self.bound_s = -INF  # Another level comes next.
        return True

    def live(self, to_s: float) -> None:
        """Let the present flow move the charge up to a time."""
        time_s = to_s - self.t_s
        if time_s > 0.0:
            load_w, plugged, _ = flow = self.flow
            used_j, before_j = load_w * time_s, self.charge_j
            self.t_s = to_s
            self.spent_j += used_j
            if self._straight and not plugged:
                # By far the most frequent: what the battery model would answer, at half the cost of asking it.
                self.charge_j = before_j - used_j if before_j > used_j else 0.0
                return
            if self._readings is not None:
                self.charge_j = self.full_j * self._readings.soc_at(to_s)
                return
            self.charge_j = after_j = self.model.after(before_j, time_s, flow)
            if after_j > before_j:
                self.throughput_j += after_j - before_j

    def age(self) -> None:
        """Take the capacity that earlier charges have left; what is in the battery stays in it."""
        self.full_j = max(self.model.full_j(self.throughput_j), self.charge_j)

    def find_level(self, before_s: float) -> None:
        """Work out when the next charge level is met, unless something else surely comes before, at `before_s`.

        The charge moves no faster than under the lightest and the heaviest load the device can have, whatever
        the screen and a round do; so no level is met before the earlier of these two, `bound_s`.
        """
        if self._readings is not None:
            self.bound_s = self.level_s = self._readings.next_crossing(self.t_s, self.floor_soc)
            if self.level_s < INF:
                charge_j = self.full_j * self._readings.soc_at(self.level_s)
                self._level = "risen" if self.low else "fallen", charge_j
            return
        _, plugged, full_j = self.flow
        rising = self._rising() if plugged else None
        falling = None if self.empty else self._falling(plugged)
        bound_s = INF
        if falling is not None:
            bound_s, _ = self._soonest(rising, falling, flow_of(self._heaviest_w, plugged, full_j))
        if rising is not None:
            lightest_w = 0.0 if self.empty else self._idle_w
            light_s, _ = self._soonest(rising, falling, flow_of(lightest_w, True, full_j))
            bound_s = min(bound_s, light_s)
        self.bound_s, self.level_s = self.t_s + bound_s, INF
        if self.bound_s <= before_s:
            time_s, met = self._soonest(rising, falling, self.flow)
            self.level_s = self.t_s + time_s
            if met is not None:
                self._level = met

    def pass_level(self) -> tuple[str, float]:
        """Let what happens at the level happen; return (what, value) for the event log."""
        name, self.charge_j = self._level
        if name in ("empty", "boot"):
            self.empty = name == "empty"
        elif name in ("top_up", "topped_up"):
            self.topping_up = name == "top_up"
        return _EVENTS[name]

    def _soonest(self, rising: Level | None, falling: Level | None, flow: Flow) -> tuple[float, Level | None]:
        """Return seconds until a level is met under a flow, and which: the one above if the charge gets there."""
        if rising is not None:
            time_s = self.model.time_to_level(self.charge_j, rising[1], flow)
            if time_s < INF:
                return time_s, rising
        if falling is not None:
            return self.model.time_to_level(self.charge_j, falling[1], flow), falling
        return INF, None

    def _rising(self) -> Level | None:
        """Return the next level up at which something happens to a device on its charger."""
        full_j, found = self.full_j, None
        if self.empty:
            found = "boot", self._group.boot_soc * full_j
        elif self.low:
            found = "risen", self.floor_soc * full_j
        if self.topping_up:
            to_j = self._group.usage.top_up_to_soc * full_j
            if found is None or to_j < found[1]:
                found = "topped_up", to_j
        return found

    def _falling(self, plugged: bool) -> Level:
        """Return the next level down at which something happens to a device that is not empty."""
        charge_j, full_j = self.charge_j, self.full_j
        top_up_j, low_j = self._top_up_soc * full_j, self.floor_soc * full_j
        name, level_j = "empty", 0.0
        if 0.0 < top_up_j < charge_j and not plugged and not self.topping_up:
            name, level_j = "top_up", top_up_j
        if level_j < low_j <= charge_j:
            # Just below the level, so that a charge that has risen to it does not count as falling through it.
            name, level_j = "fallen", math.nextafter(low_j, 0.0)
        return name, level_j
