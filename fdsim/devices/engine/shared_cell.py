"""A cell's bandwidth, divided evenly among the devices that transfer under it."""

from __future__ import annotations

import simpy

from fdsim.devices.config.outages import Cell
from fdsim.trace import Phase

#: What a local round is interrupted with when its portion of the cell's bandwidth has changed.
BANDWIDTH_CHANGED = "bandwidth changed"


class SharedCell:
    """The transfers under a cell; when one joins or leaves, the others are woken, since their portion has changed.

    A device whose own link is slower than its portion leaves the rest of it unused.
    """

    def __init__(self, env: simpy.Environment, cell: Cell) -> None:
        self._env, self.place = env, cell.place
        self._capacity_bps = {Phase.download: cell.down_bps, Phase.upload: cell.up_bps}
        self._members: dict[Phase, dict[simpy.Process, None]] = {Phase.download: {}, Phase.upload: {}}
        self._waking = {Phase.download: False, Phase.upload: False}

    def join(self, phase: Phase, process: simpy.Process) -> None:
        """Add a transfer."""
        self._members[phase][process] = None
        self._wake_soon(phase)

    def leave(self, phase: Phase, process: simpy.Process) -> None:
        """Remove a transfer that has ended, in whatever way."""
        if self._members[phase].pop(process, process) is None:
            self._wake_soon(phase)

    def portion_bps(self, phase: Phase) -> float:
        """Return what each transfer gets, bit/s."""
        return self._capacity_bps[phase] / max(1, len(self._members[phase]))

    def _wake_soon(self, phase: Phase) -> None:
        # Many join at the same instant when a round starts: they are woken once, at its end.
        if self._waking[phase] or not self._members[phase]:
            return
        self._waking[phase] = True
        event = self._env.event()
        event.callbacks.append(lambda _: self._wake(phase))
        event.succeed()

    def _wake(self, phase: Phase) -> None:
        self._waking[phase] = False
        for process in self._members[phase]:
            process.interrupt(BANDWIDTH_CHANGED)
