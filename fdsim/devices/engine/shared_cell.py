"""A cell's bandwidth, divided evenly among the devices that transfer under it."""

from __future__ import annotations

import simpy

from fdsim.devices.config.outages import Cell
from fdsim.trace import Phase

#: What a process is interrupted with when the share of its cell has changed.
SHARE_CHANGED = "share changed"


class SharedCell:
    """Who transfers under a cell; joining and leaving wakes the others, whose share has changed.

    A device whose own link is slower than its share leaves the rest of it unused.
    """

    def __init__(self, env: simpy.Environment, cell: Cell) -> None:
        self._env = env
        self._capacity_bps = {Phase.download: cell.down_bps, Phase.upload: cell.up_bps}
        self._members: dict[Phase, dict[simpy.Process, None]] = {Phase.download: {}, Phase.upload: {}}
        self._telling = {Phase.download: False, Phase.upload: False}

    def join(self, phase: Phase, process: simpy.Process) -> None:
        """A device starts to transfer."""
        self._members[phase][process] = None
        self._tell(phase)

    def leave(self, phase: Phase, process: simpy.Process) -> None:
        """A device has ended its transfer, in whatever way."""
        if self._members[phase].pop(process, process) is None:
            self._tell(phase)

    def share_bps(self, phase: Phase) -> float:
        """What each member gets, bit/s."""
        return self._capacity_bps[phase] / max(1, len(self._members[phase]))

    def _tell(self, phase: Phase) -> None:
        # Many join at the same instant when a round starts: they are told once, at its end.
        if self._telling[phase] or not self._members[phase]:
            return
        self._telling[phase] = True
        event = self._env.event()
        event.callbacks.append(lambda _: self._wake(phase))
        event.succeed()

    def _wake(self, phase: Phase) -> None:
        self._telling[phase] = False
        for process in self._members[phase]:
            process.interrupt(SHARE_CHANGED)
