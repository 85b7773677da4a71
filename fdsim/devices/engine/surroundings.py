"""What happens to a device from outside: link, screen, charger, outages and crashes come and go."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from fdsim.devices.config.fleet import DeviceGroup
from fdsim.devices.config.outages import Timeline
from fdsim.devices.models.connectivity import Spell
from fdsim.devices.models.spells import Switch
from fdsim.errors import RunError
from fdsim.rng import ClientStreams
from fdsim.trace import Network

INF = math.inf
#: Called with (time, client, what, value) at every change of state.
OnEvent = Callable[[float, int, str, float], None]
_OFFLINE = Spell(False, INF, Network.none, 0.0, 0.0, 0.0)


class OutageState:
    """What one device sees of one `[[outages]]` entry."""

    __slots__ = ("active", "spells", "takes", "until_s")

    def __init__(self, timeline: Timeline, takes: tuple[str, ...]) -> None:
        self.spells = timeline.follow()
        self.takes = takes
        self.active, self.until_s = next(self.spells)


class Surroundings:
    """A device's link, screen, charger, outages and crashes, each with the time at which it changes next."""

    __slots__ = (
        "_charger",
        "_crashes",
        "_link",
        "_log",
        "_screen",
        "charger_on",
        "charger_s",
        "client",
        "crash_s",
        "crashed",
        "group",
        "link",
        "link_s",
        "outage_s",
        "outages",
        "screen_on",
        "screen_s",
        "t_s",
        "topping_up",
    )

    link: Spell
    screen_on: bool
    charger_on: bool

    def __init__(
        self, client: int, group: DeviceGroup, streams: ClientStreams, *, outages: list[OutageState]
    ) -> None:
        self.client, self.group, self.outages, seed = client, group, outages, streams.seed
        self._log: OnEvent | None = None
        self._link: Iterator[Spell] = iter(
            group.connectivity.for_device(client, seed).spells(streams("link", client))
        )
        usage = group.usage.for_device(client, seed)

        def charger() -> Iterator[Switch]:
            return iter(usage.charger(streams("charger", client)))

        self._screen: Iterator[Switch] = iter(usage.screen(streams("screen", client), charger))
        self._charger: Iterator[Switch] = charger()
        self._crashes = group.crash.spells(streams("crash", client)) if group.crash else None
        self.t_s = 0.0
        self.link_s = self.screen_s = self.charger_s = self.crash_s = INF
        #: Whether the owner has plugged the device in because it was nearly empty, outside the charger's spells.
        self.crashed = self.topping_up = False
        self.link, self.screen_on, self.charger_on = _OFFLINE, False, False
        self._next_link(0.0)
        self._next_screen(0.0)
        self._next_charger(0.0)
        self._next_crash(0.0)
        self.outage_s = min((outage.until_s for outage in outages), default=INF)

    @property
    def plugged(self) -> bool:
        """Whether the charger is in and has power."""
        return (self.charger_on or self.topping_up) and not self.taken("power")

    def taken(self, what: str) -> bool:
        """Whether an outage has taken a network or the power away."""
        return (
            any(outage.active and what in outage.takes for outage in self.outages) if self.outages else False
        )

    def _next_link(self, now_s: float) -> None:
        spell = next(self._link, None)
        if spell is None:
            self.link_s = INF
            return
        length_s = spell.length_s
        if not length_s > 0.0:
            self._refuse(length_s, "connectivity")
        self.link = spell if spell.online else _OFFLINE
        self.link_s = now_s + length_s
        if self._log is not None:
            self.note("link", float(self.link.network))

    def _next_screen(self, now_s: float) -> None:
        spell = next(self._screen, None)
        if spell is None:
            self.screen_s = INF
            return
        self.screen_on, length_s = spell
        if not length_s > 0.0:
            self._refuse(length_s, "usage")
        self.screen_s = now_s + length_s
        self.note("screen", float(self.screen_on))

    def _next_charger(self, now_s: float) -> None:
        spell = next(self._charger, None)
        if spell is None:
            self.charger_s = INF
            return
        self.charger_on, length_s = spell
        if not length_s > 0.0:
            self._refuse(length_s, "usage")
        self.topping_up = False
        self.charger_s = now_s + length_s
        self.note("charger", float(self.charger_on))

    def _next_outage(self, now_s: float) -> None:
        for outage in self.outages:
            if outage.until_s == now_s:
                spell = next(outage.spells, None)
                outage.active = spell.on if spell else False
                outage.until_s = now_s + spell.length_s if spell else INF
                self.note("outage", float(outage.active))
        self.outage_s = min(outage.until_s for outage in self.outages)

    def _next_crash(self, now_s: float) -> None:
        if self._crashes is None:
            self.crash_s = INF
            return
        self.crashed, length_s = next(self._crashes)
        self.crash_s = now_s + length_s
        self.note("crashed", float(self.crashed))

    def _refuse(self, length_s: float, family: str) -> None:
        law: Any = getattr(self.group, family)
        raise RunError(
            f"{family} '{law.kind}' of client {self.client} gave a spell of {length_s} s; it must be above 0"
        )

    def note(self, what: str, value: float) -> None:
        """Tell the event log, if there is one, of a change at this moment."""
        if self._log is not None:
            self._log(self.t_s, self.client, what, value)
