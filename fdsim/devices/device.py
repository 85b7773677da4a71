"""A device: the owner of a charge, a link, a screen and a charger, living from change to change.

Nothing is polled. A device knows when its next change comes (`next_s`), and `advance` lives through all
changes up to a moment, each at its own time. Between rounds nobody looks at it, so whole quiet stretches
are lived through at once; a world that is watched wakes it at every change instead, which gives the very
same numbers.

Changes at the same instant happen in this order: charge level, link, screen, charger, outage, crash.
"""

from __future__ import annotations

import math
from functools import lru_cache

from fdsim.devices.battery import Flow
from fdsim.devices.fleet import DeviceGroup
from fdsim.devices.server import Eligibility
from fdsim.devices.surroundings import OnEvent, Outage, Surroundings
from fdsim.rng import stream
from fdsim.trace import Cause, Network, Phase

INF = math.inf
# Looking a member up in its enum costs more than comparing it.
_CHECK_IN, _TRAIN, _WIFI = Phase.check_in, Phase.train, Network.wifi
_BATTERY_EMPTY = Cause.battery_empty
_BATTERY_LOW = Cause.battery_low
_CRASHED = Cause.crashed
_IN_USE = Cause.in_use
_LINK_LOST = Cause.link_lost
_METERED = Cause.metered
_OFFLINE = Cause.offline
_OUTAGE = Cause.outage
_UNPLUGGED = Cause.unplugged


@lru_cache(maxsize=4096)
def _flow(load_w: float, plugged: bool, full_j: float) -> Flow:
    # Devices of a group meet the same few flows again and again.
    return Flow(load_w, plugged, full_j)


@lru_cache(maxsize=4096)
def _flows(load_w: float, screen_w: float, plugged: bool, full_j: float) -> tuple[Flow, Flow]:
    return Flow(load_w, plugged, full_j), Flow(load_w + screen_w, plugged, full_j)


def heaviest_w(group: DeviceGroup) -> float:
    """The most a device of a group can draw at any time, W."""
    radio = group.radio
    radio_w = max(radio.wifi_rx_w, radio.wifi_tx_w, radio.cellular_rx_w, radio.cellular_tx_w)
    return group.power.idle_w + group.power.screen_w + max(group.power.train_w, radio_w)


class Device(Surroundings):
    """One simulated device: its surroundings, and the charge that they and its work move."""

    __slots__ = (
        "_bound_s",
        "_flows",
        "_heaviest_w",
        "_level",
        "_level_j",
        "_low_soc",
        "_quiet_s",
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
        self, client: int, group: DeviceGroup, rule: Eligibility, seed: int, *, outages: list[Outage]
    ) -> None:
        super().__init__(client, group, seed, outages=outages)
        self.battery, self.rule = group.battery, rule
        self._low_soc = max(rule.min_soc, group.low_soc)
        self._heaviest_w = heaviest_w(group)
        self.rng = stream(seed, "device", client)
        low, high = group.initial_soc
        self.full_j = group.battery.full_j(0.0)
        self.charge_j = self.full_j * float(self.rng.uniform(low, high))
        self.speed = group.compute.speed(self.rng)
        self.spent_j = self.throughput_j = self.phase_w = 0.0
        self._until_s = INF
        self.empty = self.charge_j <= 0.0
        self.changes = 0
        self._renew()

    # -- what it is like now

    @property
    def soc(self) -> float:
        """State of charge, 0..1."""
        return self.charge_j / self.full_j

    @property
    def online(self) -> bool:
        """Whether the device is on a network that works."""
        return self.link.online and not self.empty and not self.taken(self.link.network.name)

    @property
    def low_j(self) -> float:
        """The charge below which the device takes no work, J."""
        return self._low_soc * self.full_j

    def obstacle(self, phase: Phase) -> Cause | None:
        """Answers with what keeps the device from working in a phase, the gravest first, or None.

        The link matters at check-in, download and upload; during training only if it must be unmetered.
        """
        rule, link = self.rule, self.link
        if self.crashed:
            return _CRASHED
        if self.empty:
            return _BATTERY_EMPTY
        if phase is not _TRAIN or rule.requires_unmetered:
            if not link.online:
                return _OFFLINE if phase is _CHECK_IN else _LINK_LOST
            if self.outages and self.taken(link.network.name):
                return _OUTAGE
        if self.charge_j < self._low_soc * self.full_j:
            return _BATTERY_LOW
        if rule.requires_charging:
            if not (self.charger_on or self.topping_up):
                return _UNPLUGGED
            if self.outages and self.taken("power"):
                return _OUTAGE
        if rule.requires_unmetered and link.network is not _WIFI:
            return _METERED
        if rule.requires_idle and self.screen_on:
            return _IN_USE
        return None

    # -- living

    def advance(self, to_s: float) -> None:
        """Lives through everything that happens up to and including `to_s`."""
        while self.next_s <= to_s:
            if self.screen_s == self.next_s < min(self._quiet_s, self.level_s):
                self._pass_screens(to_s)
            else:
                self._change(self.next_s)
        if to_s > self.t_s:
            self._settle(to_s)

    def work_at(self, phase_w: float, until_s: float = INF) -> None:
        """Draws `phase_w` more than by itself from now on; whoever asks comes back at `until_s` at the latest."""
        if phase_w == self.phase_w and until_s == self._until_s:
            return
        self.phase_w, self._until_s = phase_w, until_s
        self._set_flows()
        self._look_ahead()

    def nothing_before(self, then_s: float) -> bool:
        """Whether nothing about the device changes up to and including a time, whatever it works at."""
        if then_s >= self.screen_s or then_s >= self._quiet_s:
            return False
        if then_s >= self._bound_s:
            self._find_level()
        return then_s < self._bound_s

    @property
    def watched(self) -> bool:
        """Whether somebody wants to be told of every change."""
        return self._log is not None

    def _settle(self, t_s: float) -> None:
        time_s = t_s - self.t_s
        if time_s > 0.0:
            before_j, flow = self.charge_j, self.flow
            self.charge_j = after_j = self.battery.after(before_j, time_s, flow)
            self.spent_j += flow.load_w * time_s
            if after_j > before_j:
                self.throughput_j += after_j - before_j
            self.t_s = t_s

    def _pass_screens(self, to_s: float) -> None:
        """Lives through changes of the screen, the most frequent ones, until something else comes.

        Whatever the screen does, no charge level is met before `_bound_s`, so that levels need no thought
        here.
        """
        after, flows, spells, log = self.battery.after, self._flows, self._screen, self._log
        quiet_s, bound_s, screen_s, t_s = self._quiet_s, self._bound_s, self.screen_s, self.t_s
        charge_j, spent_j, flow, changes = self.charge_j, self.spent_j, self.flow, self.changes
        while screen_s <= to_s and screen_s < quiet_s:
            time_s = screen_s - t_s
            before_j, charge_j = charge_j, after(charge_j, time_s, flow)
            spent_j += flow[0] * time_s
            if charge_j > before_j:
                self.throughput_j += charge_j - before_j
            t_s = screen_s
            changes += 1
            spell = next(spells, None)
            if spell is None:
                screen_s = INF
            else:
                on, length_s = spell
                if not length_s > 0.0:
                    self._refuse(length_s, "usage")
                self.screen_on = on
                screen_s = t_s + length_s
                flow = flows[on]
                if log is not None:
                    log(t_s, self.client, "screen", float(on))
                    log(t_s, self.client, "load_w", flow[0])
                    log(t_s, self.client, "soc", charge_j / self.full_j)
            if bound_s <= screen_s and bound_s <= quiet_s:
                break
        self.screen_s, self.t_s, self.charge_j, self.spent_j = screen_s, t_s, charge_j, spent_j
        self.flow, self.changes = flow, changes
        if bound_s <= screen_s and bound_s <= quiet_s:
            self._find_level()
        self.next_s = min(screen_s, self.level_s, quiet_s)

    def _change(self, now_s: float) -> None:
        self._settle(now_s)
        self.changes += 1
        if now_s == self.level_s:
            self._pass_level()
            self._renew()
        elif now_s == self.link_s:
            self._next_link(now_s)
            self._look_ahead()
        elif now_s == self.screen_s:
            self._next_screen(now_s)
            self._renew()
        elif now_s == self.charger_s:
            self._next_charger(now_s)
            if self.charger_on:
                # A battery ages between charges; what is in it stays in it.
                self.full_j = max(self.battery.full_j(self.throughput_j), self.charge_j)
            self._renew()
        elif now_s == self.outage_s:
            self._next_outage(now_s)
            self._renew()
        else:
            self._next_crash(now_s)
            self._look_ahead()

    def _renew(self) -> None:
        """Works out everything anew after a change of what moves the charge."""
        self._set_flows()
        self._bound_s = -INF
        self._look_ahead()

    def _look_ahead(self) -> None:
        """Works out what comes next."""
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
        """Works out when the next charge level is met, unless something else surely comes before.

        The charge moves no faster than under the lightest and the heaviest load the device can have, whatever
        the screen and a round do; so no level is met before the earlier of these two, `_bound_s`.
        """
        flow = self.flow
        bound_s = INF
        if not self.empty:
            bound_s = self._time_to_next_level(_flow(self._heaviest_w, flow.plugged, flow.full_j))
        if flow.plugged:
            lightest_w = 0.0 if self.empty else self.group.power.idle_w
            bound_s = min(bound_s, self._time_to_next_level(_flow(lightest_w, True, flow.full_j)))
        self._bound_s = bound_s = self.t_s + bound_s
        self.level_s = INF
        if bound_s <= min(self.screen_s, self._quiet_s, self._until_s):
            self.level_s = self.t_s + self._time_to_next_level(flow)

    def _time_to_next_level(self, flow: Flow) -> float:
        charge_j, full_j, usage = self.charge_j, self.full_j, self.group.usage
        low_j = self._low_soc * full_j
        if flow.plugged:
            rising, level_j = "", INF
            if self.empty:
                rising, level_j = "boot", self.group.boot_soc * full_j
            elif charge_j < low_j:
                rising, level_j = "risen", low_j
            if self.topping_up and usage.top_up_to_soc * full_j < level_j:
                rising, level_j = "topped_up", usage.top_up_to_soc * full_j
            if rising:
                time_s = self.battery.time_to_level(charge_j, level_j, flow)
                if time_s < INF:
                    self._level, self._level_j = rising, level_j
                    return time_s
        if self.empty:
            return INF
        self._level, self._level_j = "empty", 0.0
        top_up_j = usage.top_up_soc * full_j
        if 0.0 < top_up_j < charge_j and not flow.plugged and not self.topping_up:
            self._level, self._level_j = "top_up", top_up_j
        if self._level_j < low_j <= charge_j:
            # Just below the level, so that a charge that has risen to it does not count as falling through it.
            self._level, self._level_j = "fallen", math.nextafter(low_j, 0.0)
        return self.battery.time_to_level(charge_j, self._level_j, flow)

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

    def tell(self, on_event: OnEvent) -> None:
        """Tells `on_event` of the present state, and of every change from now on."""
        self._log = on_event
        self.note("link", float(self.link.network))
        self.note("screen", float(self.screen_on))
        self.note("charger", float(self.charger_on or self.topping_up))
        self.note("power", float(not self.empty))
        self.note("low", float(self.charge_j < self.low_j))
        self.note("load_w", self.flow.load_w)
        self.note("soc", self.soc)
