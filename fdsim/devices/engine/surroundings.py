"""What happens to a device from outside: link, screen, charger, outages and crashes come and go."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NoReturn

from fdsim.devices.config.fleet import DeviceGroup
from fdsim.devices.config.outages import Outage, Timeline
from fdsim.devices.models.connectivity import Spell
from fdsim.devices.models.habits import Phone
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

    __slots__ = ("_outage", "_timeline", "active", "spells", "takes", "until_s")

    spells: Iterator[Switch]
    active: bool
    until_s: float

    def __init__(self, timeline: Timeline, outage: Outage) -> None:
        self.takes, self._timeline, self._outage = outage.takes, timeline, outage

    def begin(self, phone: Phone) -> None:
        """Begin the first spell, for a device that is ready to be looked at."""
        self.spells = self._timeline.follow()
        if self._outage.place is not None:  # Else no owner has to be drawn.
            self.spells = self._outage.felt(self.spells, phone.owner)
        self.active, self.until_s = next(self.spells)


class Surroundings:
    """A device's link, screen, charger, outages and crashes, each with the time of its next change (inf for never)."""

    __slots__ = (
        "_charger_spells",
        "_client",
        "_crash_spells",
        "_group",
        "_link_spells",
        "charger_on",
        "charger_s",
        "crash_s",
        "crashed",
        "link",
        "link_s",
        "log",
        "outage_s",
        "outages",
        "screen_on",
        "screen_s",
        "screen_spells",
    )

    def __init__(
        self,
        client: int,
        group: DeviceGroup,
        streams: ClientStreams,
        *,
        phone: Phone,
        outages: list[OutageState],
    ) -> None:
        self._client, self._group, self.outages = client, group, outages
        self.log: OnEvent | None = None
        connectivity = group.connectivity.for_device(client, streams.seed)
        usage = group.usage.for_device(client, streams.seed)
        self._link_spells = iter(connectivity.follow(streams("link", client), phone))
        self.screen_spells = iter(usage.screen(streams("screen", client), phone))
        self._charger_spells = iter(usage.charger(streams("charger", client), phone))
        self._crash_spells = iter(group.crash.spells(streams("crash", client)) if group.crash else ())
        self.link, self.screen_on, self.charger_on, self.crashed = _OFFLINE, False, False, False

    def begin(self, phone: Phone) -> None:
        """Begin the first spells but the screen's, which looks at the charger, for a device that is ready."""
        for outage in self.outages:
            outage.begin(phone)
        self.outage_s = min((outage.until_s for outage in self.outages), default=INF)
        self.next_link(0.0)
        self.next_charger(0.0)
        self.next_crash(0.0)

    def taken(self, what: str) -> bool:
        """Return whether an outage has taken a network or the power away."""
        # Few fleets have outages, and the question is put at every change.
        return bool(self.outages) and any(o.active and what in o.takes for o in self.outages)

    def next_link(self, now_s: float) -> None:
        """Begin the next spell of the link."""
        spell = next(self._link_spells, None)
        if spell is None:
            self.link_s = INF
            return
        if not spell.length_s > 0.0:
            self.refuse(spell.length_s, "connectivity")
        self.link = spell if spell.online else _OFFLINE
        self.link_s = now_s + spell.length_s
        self._note(now_s, "link", self.link.network)

    def next_screen(self, now_s: float) -> None:
        """Begin the next spell of the screen."""
        spell = next(self.screen_spells, None)
        if spell is None:
            self.screen_s = INF
            return
        self.screen_on, length_s = spell
        if not length_s > 0.0:
            self.refuse(length_s, "usage")
        self.screen_s = now_s + length_s
        self._note(now_s, "screen", self.screen_on)

    def next_charger(self, now_s: float) -> bool:
        """Begin the next spell of the charger; return whether there is one."""
        spell = next(self._charger_spells, None)
        if spell is None:
            self.charger_s = INF
            return False
        was_on = self.charger_on
        self.charger_on, length_s = spell
        if not length_s > 0.0:
            self.refuse(length_s, "usage")
        self.charger_s = now_s + length_s
        if self.charger_on != was_on:
            self._note(now_s, "charger", self.charger_on)
        return True

    def next_outage(self, now_s: float) -> None:
        """Begin the next spell of the outages that begin or end now."""
        for outage in self.outages:
            if outage.until_s == now_s:
                spell = next(outage.spells, None)
                outage.active = spell.on if spell else False
                outage.until_s = now_s + spell.length_s if spell else INF
                self._note(now_s, "outage", outage.active)
        self.outage_s = min(outage.until_s for outage in self.outages)

    def next_crash(self, now_s: float) -> None:
        """Crash, or recover."""
        spell = next(self._crash_spells, None)
        if spell is None:
            self.crash_s = INF
            return
        self.crashed, length_s = spell
        self.crash_s = now_s + length_s
        self._note(now_s, "crashed", self.crashed)

    def refuse(self, length_s: float, family: str) -> NoReturn:
        """Stop the run: a connectivity or usage model gave a spell that takes no time."""
        kind = getattr(self._group, family).kind
        raise RunError(
            f"{family} '{kind}' of client {self._client} gave a spell of {length_s} s; it must be above 0"
        )

    def _note(self, now_s: float, what: str, value: float) -> None:
        if self.log is not None:
            self.log(now_s, self._client, what, float(value))
