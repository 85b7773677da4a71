"""SimPy's clock with a fixed order of what happens at the same instant, for the reference."""

from __future__ import annotations

from enum import IntEnum
from heapq import heappush

import simpy

from fdsim.errors import RunError

#: Who goes first at the same instant, as priorities of SimPy's queue. SimPy's own, 0 and 1, come before: whatever
#: follows from an event happens before the next turn.
Turn = IntEnum("Turn", "level link screen charger outage crash local_round server", start=2)


class Clock(simpy.Environment):
    """SimPy's environment, with timeouts that happen at a given time and turn."""

    def at(self, t_s: float, turn: Turn) -> simpy.Event:
        """Return an event that happens at a time: as `timeout(t_s - now)`, but in turn and without rounding."""
        event = simpy.Event(self)
        event._ok, event._value = True, None
        heappush(self._queue, (t_s, turn, next(self._eid), event))  # type: ignore[misc]
        return event

    def spell(self, length_s: float, turn: Turn) -> simpy.Event:
        """Return the end of a spell that starts now."""
        if not length_s > 0.0:
            raise RunError(f"a model of the {turn.name} gave a spell of {length_s} s; it must be above 0")
        return self.at(self.now + length_s, turn)
