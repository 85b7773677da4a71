"""The charge of a device: moved by load and charger, watched for the levels at which something happens."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

from fdsim.devices.config.fleet import DeviceGroup
from fdsim.devices.config.server import Eligibility
from fdsim.devices.engine.surroundings import OutageState, Surroundings
from fdsim.devices.models.battery import Flow, falls_straight
from fdsim.rng import ClientStreams

INF = math.inf
#: What happens at a charge level, and the charge, J.
Level = tuple[str, float]


@lru_cache(maxsize=4096)
def _flow(load_w: float, plugged: bool, full_j: float) -> Flow:
    # Devices of a group meet the same few flows again and again.
    return Flow(load_w, plugged, full_j)


@lru_cache(maxsize=4096)
def _flows(load_w: float, screen_w: float, plugged: bool, full_j: float) -> tuple[Flow, Flow]:
    return Flow(load_w, plugged, full_j), Flow(load_w + screen_w, plugged, full_j)


def _fall_s(way_j: float, load_w: float) -> float:
    """Seconds in which a load takes a charge straight down by `way_j`."""
    if way_j == 0.0:
        return 0.0
    return way_j / load_w if way_j > 0.0 and load_w > 0.0 else INF


def heaviest_w(group: DeviceGroup) -> float:
    """The most a device of a group can draw at any time, W."""
    radio = group.radio
    radio_w = max(radio.wifi_rx_w, radio.wifi_tx_w, radio.cellular_rx_w, radio.cellular_tx_w)
    return group.power.idle_w + group.power.screen_w + max(group.power.train_w, radio_w)


class BatteryState(Surroundings):
    """A device's surroundings, and the charge that they and its work move."""

    __slots__ = (
        "_bound_s",
        "_flows",
        "_heaviest_w",
        "_level",
        "_level_j",
        "_low_soc",
        "_quiet_s",
        "_straight",
        "_until_s",
        "battery",
        "changes",
        "charge_j",
        "empty",
        "flow",
        "full_j",
        "level_s",
        "next_s",
        "phase_w",
        "rng",
        "rule",
        "speed",
        "spent_j",
        "throughput_j",
    )

    flow: Flow
    _flows: tuple[Flow, Flow]
    level_s: float
    next_s: float
    _bound_s: float
    _quiet_s: float
    _level: str
    _level_j: float

    def __init__(
        self,
        client: int,
        group: DeviceGroup,
        rule: Eligibility,
        streams: ClientStreams,
        *,
        outages: list[OutageState],
    ) -> None:
        super().__init__(client, group, streams, outages=outages)
        self.battery, self.rule = group.battery, rule
        self._straight = falls_straight(group.battery)
        self._low_soc = max(rule.min_soc, group.low_soc)
        self._heaviest_w = heaviest_w(group)
        self.rng = streams("device", client)
        low, high = group.initial_soc
        self.full_j = group.battery.full_j(0.0)
        self.charge_j = self.full_j * float(self.rng.uniform(low, high))
        self.speed = group.compute.speed(self.rng)
        self.spent_j = self.throughput_j = self.phase_w = 0.0
        self._until_s = INF
        self.empty = self.charge_j <= 0.0
        self.changes = 0
        self._renew()

    @property
    def soc(self) -> float:
        """State of charge, 0..1."""
        return self.charge_j / self.full_j

    @property
    def low_j(self) -> float:
        """The charge below which the device takes no work, J."""
        return self._low_soc * self.full_j

    def work_through(self, phases: Iterable[tuple[float, float]]) -> None:
        """Draw (power, up to a time) one after the other; nothing else may change before the last of these times."""
        power, after, (_, plugged, full_j) = self.group.power, self.battery.after, self.flow
        idle_w, screen_w = power.idle_w, power.screen_w if self.screen_on else 0.0
        straight = self._straight and not plugged
        t_s, charge_j, spent_j = self.t_s, self.charge_j, self.spent_j
        for phase_w, until_s in phases:
            time_s = until_s - t_s
            if time_s > 0.0:
                load_w = idle_w + phase_w + screen_w
                used_j = load_w * time_s
                spent_j += used_j
                if straight:
                    charge_j = charge_j - used_j if charge_j > used_j else 0.0
                else:
                    before_j = charge_j
                    charge_j = after(charge_j, time_s, tuple.__new__(Flow, (load_w, plugged, full_j)))
                    if charge_j > before_j:
                        self.throughput_j += charge_j - before_j
                t_s = until_s
        self.t_s, self.charge_j, self.spent_j = t_s, charge_j, spent_j
        if self._bound_s <= self._quiet_s and self._bound_s <= self.screen_s:
            self._find_level()
            self.next_s = min(self.screen_s, self.level_s, self._quiet_s)

    def _settle(self, t_s: float) -> None:
        time_s = t_s - self.t_s
        if time_s > 0.0:
            before_j, flow = self.charge_j, self.flow
            used_j = flow[0] * time_s
            self.spent_j += used_j
            if self._straight and not flow[1]:
                self.charge_j = before_j - used_j if before_j > used_j else 0.0
            else:
                self.charge_j = after_j = self.battery.after(before_j, time_s, flow)
                if after_j > before_j:
                    self.throughput_j += after_j - before_j
            self.t_s = t_s

    def _renew(self) -> None:
        """Work out everything anew after a change of what moves the charge."""
        self._set_flows()
        self._bound_s = -INF
        self._look_ahead()

    def _look_ahead(self) -> None:
        """Work out what comes next."""
        self._quiet_s = quiet_s = min(self.link_s, self.charger_s, self.outage_s, self.crash_s)
        self.level_s = INF
        if self._bound_s <= quiet_s and self._bound_s <= self.screen_s and self._bound_s <= self._until_s:
            self._find_level()
        self.next_s = min(self.screen_s, self.level_s, quiet_s)
        if self._log is not None:
            self._log(self.t_s, self.client, "load_w", self.flow.load_w)
            self._log(self.t_s, self.client, "soc", self.charge_j / self.full_j)

    def _set_flows(self) -> None:
        plugged = self.plugged if self.outages else self.charger_on or self.topping_up
        if self.empty:
            self._flows = _flows(0.0, 0.0, plugged, self.full_j)
        else:
            power = self.group.power
            self._flows = _flows(power.idle_w + self.phase_w, power.screen_w, plugged, self.full_j)
        self.flow = self._flows[self.screen_on]

    # -- charge levels

    def _find_level(self) -> None:
        """Work out when the next charge level is met, unless something else surely comes before.

        The charge moves no faster than under the lightest and the heaviest load the device can have, whatever
        the screen and a round do; so no level is met before the earlier of these two, `_bound_s`.
        """
        t_s, (load_w, plugged, full_j) = self.t_s, self.flow
        if self._straight and not plugged and not self.empty:
            # By far the most frequent: what the rest of this function would find, without asking the battery.
            level = self._falling(plugged)
            way_j = self.charge_j - level[1]
            self._bound_s = bound_s = t_s + _fall_s(way_j, self._heaviest_w)
            self.level_s = INF
            if bound_s <= self.screen_s and bound_s <= self._quiet_s and bound_s <= self._until_s:
                self.level_s = t_s + _fall_s(way_j, load_w)
                self._level, self._level_j = level
            return
        rising = self._rising() if plugged else None
        falling = None if self.empty else self._falling(plugged)
        bound_s = INF
        if falling is not None:
            bound_s, _ = self._soonest(rising, falling, _flow(self._heaviest_w, plugged, full_j))
        if rising is not None:
            lightest_w = 0.0 if self.empty else self.group.power.idle_w
            light_s, _ = self._soonest(rising, falling, _flow(lightest_w, True, full_j))
            bound_s = min(bound_s, light_s)
        self._bound_s = bound_s = t_s + bound_s
        self.level_s = INF
        if bound_s <= self.screen_s and bound_s <= self._quiet_s and bound_s <= self._until_s:
            time_s, met = self._soonest(rising, falling, self.flow)
            self.level_s = t_s + time_s
            if met is not None:
                self._level, self._level_j = met

    def _soonest(self, rising: Level | None, falling: Level | None, flow: Flow) -> tuple[float, Level | None]:
        """Seconds until a level is met under a flow, and which: the one above if the charge gets there."""
        if rising is not None:
            time_s = self.battery.time_to_level(self.charge_j, rising[1], flow)
            if time_s < INF:
                return time_s, rising
        if falling is not None:
            return self.battery.time_to_level(self.charge_j, falling[1], flow), falling
        return INF, None

    def _rising(self) -> Level | None:
        """The next level up at which something happens to a device on its charger."""
        full_j, found = self.full_j, None
        if self.empty:
            found = "boot", self.group.boot_soc * full_j
        elif self.charge_j < self._low_soc * full_j:
            found = "risen", self._low_soc * full_j
        if self.topping_up:
            to_j = self.group.usage.top_up_to_soc * full_j
            if found is None or to_j < found[1]:
                found = "topped_up", to_j
        return found

    def _falling(self, plugged: bool) -> Level:
        """The next level down at which something happens to a device that is not empty."""
        charge_j, full_j = self.charge_j, self.full_j
        top_up_j, low_j = self.group.usage.top_up_soc * full_j, self._low_soc * full_j
        name, level_j = "empty", 0.0
        if 0.0 < top_up_j < charge_j and not plugged and not self.topping_up:
            name, level_j = "top_up", top_up_j
        if level_j < low_j <= charge_j:
            # Just below the level, so that a charge that has risen to it does not count as falling through it.
            name, level_j = "fallen", math.nextafter(low_j, 0.0)
        return name, level_j

    def _pass_level(self) -> None:
        self.charge_j = self._level_j
        if self._level == "empty":
            self.empty = True
            self.note("power", 0.0)
        elif self._level == "boot":
            self.empty = False
            self.note("power", 1.0)
        elif self._level == "top_up":
            self.topping_up = True
            self.note("charger", 1.0)
        elif self._level == "topped_up":
            self.topping_up = False
            self.note("charger", 0.0)
        elif self._level == "fallen":
            self.note("low", 1.0)
        else:
            self.note("low", 0.0)
