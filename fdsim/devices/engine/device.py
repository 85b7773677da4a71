"""A device: the owner of a charge, a link, a screen and a charger, living from change to change.

Nothing is polled. A device knows when its next change comes (`next_s`), and `advance` lives through all
changes up to a moment, each at its own time. Between rounds nobody looks at it, so whole quiet stretches
are lived through at once; a world that is watched wakes it at every change instead, which gives the very
same numbers.

Changes at the same instant happen in this order: charge level, link, screen, charger, outage, crash.
"""

from __future__ import annotations

import math

from fdsim.devices.engine.battery_state import BatteryState
from fdsim.devices.engine.shared_cell import SharedCell
from fdsim.devices.engine.surroundings import OnEvent
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


class Device(BatteryState):
    """One simulated device."""

    __slots__ = ("cell", "free_frac", "work")

    cell: SharedCell | None
    work: float
    free_frac: float

    # -- what it is like now

    @property
    def online(self) -> bool:
        """Whether the device is on a network that works."""
        link = self.link
        return link.online and not self.empty and not (self.outages and self.taken(link.network.name))

    def obstacle(self, phase: Phase) -> Cause | None:
        """Return what keeps the device from working in a phase, the gravest first, or None.

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
        """Live through everything that happens up to and including `to_s`."""
        while self.next_s <= to_s:
            screen_s = self.screen_s
            if screen_s < self._quiet_s and screen_s < self.level_s:
                self._pass_screens(to_s)
            else:
                self._change(self.next_s)
        self._settle(to_s)

    def work_at(self, phase_w: float, until_s: float = INF) -> None:
        """Draw `phase_w` more than by itself from now on; whoever asks comes back at `until_s` at the latest."""
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

    def _pass_screens(self, to_s: float) -> None:
        """Live through changes of the screen, the most frequent ones, until something else comes.

        Whatever the screen does, no charge level is met before `_bound_s`, so that levels need no thought
        here.
        """
        after, flows, spells, log = self.battery.after, self._flows, self._screen, self._log
        quiet_s, bound_s, screen_s, t_s = self._quiet_s, self._bound_s, self.screen_s, self.t_s
        charge_j, spent_j, flow, changes = self.charge_j, self.spent_j, self.flow, self.changes
        on, last_s, straight = self.screen_on, -INF, self._straight and not flow[1]
        stop_s = quiet_s if quiet_s < bound_s else bound_s
        for on, length_s in spells:
            time_s = screen_s - t_s
            used_j = flow[0] * time_s
            spent_j += used_j
            if straight:
                charge_j = charge_j - used_j if charge_j > used_j else 0.0
            else:
                before_j, charge_j = charge_j, after(charge_j, time_s, flow)
                if charge_j > before_j:
                    self.throughput_j += charge_j - before_j
            t_s = screen_s
            changes += 1
            if not length_s > 0.0:
                self._refuse(length_s, "usage")
            screen_s = t_s + length_s
            flow = flows[on]
            if log is not None:
                log(t_s, self.client, "screen", float(on))
                log(t_s, self.client, "load_w", flow[0])
                log(t_s, self.client, "soc", charge_j / self.full_j)
            if screen_s > to_s or screen_s >= stop_s:
                break
        else:
            # No spell comes after the present one, which lasts for ever.
            last_s, screen_s = screen_s, INF
        self.screen_s, self.t_s, self.charge_j, self.spent_j = screen_s, t_s, charge_j, spent_j
        self.flow, self.changes, self.screen_on = flow, changes, on
        self._settle(last_s)
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

    def tell(self, on_event: OnEvent) -> None:
        """Tell `on_event` of the present state, and of every change from now on."""
        self._log = on_event
        self.note("link", float(self.link.network))
        self.note("screen", float(self.screen_on))
        self.note("charger", float(self.charger_on or self.topping_up))
        self.note("power", float(not self.empty))
        self.note("low", float(self.charge_j < self.low_j))
        self.note("load_w", self.flow.load_w)
        self.note("soc", self.soc)
