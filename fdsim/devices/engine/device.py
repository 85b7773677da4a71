"""A device: its surroundings, its battery and its work, living from change to change.

Nothing is polled. A device knows when its next change comes (`next_s`), and `advance` lives through all
changes up to a moment, each at its own time. Between rounds nobody looks at it, so whole quiet stretches
are lived through at once; a world that keeps an event log wakes it at every change instead, which gives the
very same numbers.

Changes at the same instant happen in this order: charge level, link, screen, charger, outage, crash.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from fdsim.devices.config.fleet import DeviceGroup, Drain
from fdsim.devices.config.server import Eligibility
from fdsim.devices.engine.battery_state import BatteryState, flow_of, flows_of
from fdsim.devices.engine.shared_cell import SharedCell
from fdsim.devices.engine.surroundings import OnEvent, OutageState, Surroundings
from fdsim.devices.models.battery import Flow
from fdsim.devices.models.habits import Habits, Owner
from fdsim.rng import ClientStreams

INF = math.inf


class Device:
    """One simulated device."""

    __slots__ = (
        "_flows",
        "_log",
        "_owner",
        "_phase_w",
        "_quiet_s",
        "_streams",
        "_until_s",
        "battery",
        "cell",
        "changes",
        "client",
        "free_frac",
        "group",
        "next_s",
        "on_charger",
        "power",
        "rng",
        "rule",
        "speed",
        "surroundings",
        "work",
    )

    _flows: tuple[Flow, Flow]
    _owner: Owner | None
    _quiet_s: float
    next_s: float

    def __init__(
        self,
        client: int,
        group: DeviceGroup,
        rule: Eligibility,
        streams: ClientStreams,
        *,
        outages: list[OutageState],
    ) -> None:
        self.client, self.group, self.rule = client, group, rule
        self._log: OnEvent | None = None
        self.rng = streams("device", client)
        self._streams, self._owner = streams, None
        self.surroundings = Surroundings(client, group, streams, phone=self, outages=outages)
        soc, readings = (
            float(self.rng.uniform(*group.soc_range)),
            group.battery.readings(client, streams.seed),
        )
        #: What this device draws, which may be more or less than others of its group.
        self.power = group.power.of_device(self.rng)
        self.battery = BatteryState(group, self.power, rule, soc, readings)
        self.speed = group.compute.speed(self.rng)
        #: The training of a round, in the unit of the compute model, and the part of the processor that is free for it.
        self.work, self.free_frac = 0.0, 1.0
        #: The cell whose bandwidth the device shares, if any.
        self.cell: SharedCell | None = None
        #: Changes of state so far.
        self.changes = 0
        self._phase_w, self._until_s = 0.0, INF
        self.on_charger = False
        self.surroundings.begin(self)
        #: Whether the charger is in, by habit or to top up.
        self.on_charger = self.surroundings.charger_on
        self.surroundings.next_screen(0.0)
        self._renew()

    # -- what it is like now

    @property
    def soc(self) -> float:
        """State of charge, 0..1."""
        return self.battery.charge_j / self.battery.full_j

    @property
    def t_s(self) -> float:
        """The time up to which the charge is known, s."""
        return self.battery.t_s

    @property
    def screen_on(self) -> bool:
        """Whether the screen is on."""
        return self.surroundings.screen_on

    @property
    def owner(self) -> Owner:
        """Who uses the device; drawn when a model first asks."""
        if self._owner is None:
            self._owner = Owner(self.group.habits or Habits(), self._streams("owner", self.client))
        return self._owner

    def soc_after(self, soc: float, time_s: float, *, lit_frac: float, plugged: bool) -> float:
        """Return what a state of charge becomes after some time with the screen on for a share of it."""
        drain = Drain(self.group.battery, self.power)
        return drain.soc_after(soc, time_s, lit_frac=lit_frac, plugged=plugged)

    def begin_at(self, soc: float) -> None:
        """Begin with a state of charge, if the group leaves that to how the device is used."""
        if self.group.initial_soc == "usual":
            self.battery.begin_at(soc)

    def nothing_before(self, then_s: float) -> bool:
        """Return whether nothing about the device changes up to and including a time, whatever it works at."""
        if then_s >= self.surroundings.screen_s or then_s >= self._quiet_s:
            return False
        if then_s >= self.battery.bound_s:
            self._find_level()
        return then_s < self.battery.bound_s

    # -- living

    def advance(self, to_s: float) -> None:
        """Live through everything that happens up to and including `to_s`."""
        while self.next_s <= to_s:
            screen_s = self.surroundings.screen_s
            if screen_s < self._quiet_s and screen_s < self.battery.level_s:
                self._pass_screens(to_s)
            else:
                self._change(self.next_s)
        self.battery.live(to_s)

    def work_at(self, phase_w: float, until_s: float = INF) -> None:
        """Draw `phase_w` more than by itself from now on; the caller comes back at `until_s` at the latest."""
        if phase_w == self._phase_w and until_s == self._until_s:
            return
        self._phase_w, self._until_s = phase_w, until_s
        self._set_flow()
        self._look_ahead()

    def rest(self) -> None:
        """Let paused work wait for a charge that is well above the lowest, not just at it."""
        if self.battery.rest(self.battery.low):
            self._look_ahead()

    def rested(self) -> None:
        """Take work again from the lowest charge on."""
        if self.battery.rest(False):
            self._look_ahead()

    def cell_here(self, now_s: float) -> SharedCell | None:
        """Return the cell that serves the device where its owner is now, if there is one."""
        cell = self.cell
        if cell is None or cell.place is None or self.owner.at(now_s).place == cell.place:
            return cell
        return None

    def work_through(self, phases: Iterable[tuple[float, float]]) -> None:
        """Draw (power, up to a time) one after the other; nothing else may change before the last of these times."""
        battery, power = self.battery, self.power
        own = battery.flow
        screen_w = power.screen_w if self.surroundings.screen_on else 0.0
        for phase_w, until_s in phases:
            battery.flow = flow_of(power.idle_w + phase_w + screen_w, own[1], own[2])
            battery.live(until_s)
        battery.flow = own
        self._meet_next(self.surroundings.screen_s)

    def _pass_screens(self, to_s: float) -> None:
        """Live through changes of the screen, the most frequent ones, until something else comes.

        Whatever the screen does, no charge level is met before `bound_s`, so that levels need no thought here.
        """
        # Local names: this loop lives through six of seven changes of a phone.
        battery, around, flows, log = self.battery, self.surroundings, self._flows, self._log
        live, screen_s, changes, on = battery.live, around.screen_s, self.changes, around.screen_on
        stop_s = min(self._quiet_s, battery.bound_s)
        for on, length_s in around.screen_spells:
            live(screen_s)
            changes += 1
            if not length_s > 0.0:
                around.refuse(length_s, "usage")
            battery.flow = flows[on]
            if log is not None:
                log(screen_s, self.client, "screen", float(on))
                self._note_charge()
            screen_s += length_s
            if screen_s > to_s or screen_s >= stop_s:
                break
        else:
            # No spell comes after the present one, which lasts for ever.
            live(screen_s)
            screen_s = INF
        around.screen_on, around.screen_s, self.changes = on, screen_s, changes
        self._meet_next(screen_s)

    def _change(self, now_s: float) -> None:
        battery, around = self.battery, self.surroundings
        battery.live(now_s)
        self.changes += 1
        if now_s == battery.level_s:
            what, value = battery.pass_level()
            self.on_charger = around.charger_on or battery.topping_up
            self.note(what, value)
            if what == "charger" and self.group.usage.screen_sees_charger:
                around.next_screen(now_s)
            self._renew()
        elif now_s == around.link_s:
            around.next_link(now_s)
            self._look_ahead()
        elif now_s == around.screen_s:
            around.next_screen(now_s)
            self._renew()
        elif now_s == around.charger_s:
            self._next_charger(now_s)
            self._renew()
        elif now_s == around.outage_s:
            around.next_outage(now_s)
            self._renew()
        else:
            around.next_crash(now_s)
            self._look_ahead()

    def _next_charger(self, now_s: float) -> None:
        around, battery, was_on = self.surroundings, self.battery, self.on_charger
        if not around.next_charger(now_s):
            return  # the last spell goes on for ever: nobody plugs anything in
        battery.topping_up, self.on_charger = False, around.charger_on
        if self.on_charger == was_on:
            # The owner has thought of charging and has not done it: nobody can see that.
            self.changes -= 1
        elif self.group.usage.screen_sees_charger:
            around.next_screen(now_s)
        if around.charger_on:
            battery.age()

    # -- what comes next

    def _renew(self) -> None:
        """Work out everything anew after a change of what moves the charge."""
        self._set_flow()
        self.battery.bound_s = -INF
        self._look_ahead()

    def _set_flow(self) -> None:
        battery, around, power = self.battery, self.surroundings, self.power
        plugged = self.on_charger and not around.taken("power")
        if battery.empty:
            own_w = screen_w = 0.0
        else:
            own_w, screen_w = power.idle_w + self._phase_w, power.screen_w
        self._flows = flows_of(own_w, screen_w, plugged, battery.full_j)
        battery.flow = self._flows[around.screen_on]

    def _look_ahead(self) -> None:
        """Work out what comes next."""
        around, battery = self.surroundings, self.battery
        self._quiet_s = min(around.link_s, around.charger_s, around.outage_s, around.crash_s)
        battery.level_s = INF
        self._meet_next(min(around.screen_s, self._until_s))
        if self._log is not None:
            self._note_charge()

    def _meet_next(self, before_s: float) -> None:
        """Set `next_s`, and find the next charge level if it may be met before `before_s`."""
        battery, quiet_s = self.battery, self._quiet_s
        if battery.bound_s <= quiet_s and battery.bound_s <= before_s:
            self._find_level()
        screen_s, level_s = self.surroundings.screen_s, battery.level_s
        next_s = screen_s if screen_s < level_s else level_s
        self.next_s = next_s if next_s < quiet_s else quiet_s

    def _find_level(self) -> None:
        self.battery.find_level(min(self.surroundings.screen_s, self._quiet_s, self._until_s))

    # -- the event log

    def tell(self, on_event: OnEvent) -> None:
        """Tell `on_event` of the present state, and of every change from now on."""
        battery, around = self.battery, self.surroundings
        self._log = around.log = on_event
        self.note("link", float(around.link.network))
        self.note("screen", float(around.screen_on))
        self.note("charger", float(self.on_charger))
        self.note("power", float(not battery.empty))
        self.note("low", float(battery.low))
        self._note_charge()

    def note(self, what: str, value: float) -> None:
        """Tell the event log, if there is one, of a change at this moment."""
        if self._log is not None:
            self._log(self.battery.t_s, self.client, what, value)

    def _note_charge(self) -> None:
        self.note("load_w", self.battery.flow.load_w)
        self.note("soc", self.soc)
