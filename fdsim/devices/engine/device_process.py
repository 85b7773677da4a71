"""A device and the SimPy process that runs its local rounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import Any

import simpy

from fdsim.devices.engine.closed_form_round import Ends, close, closed_form_ends, complete
from fdsim.devices.engine.device import Device
from fdsim.devices.engine.local_round import LocalRoundResult, RoundRequest, Track, delay_s, race
from fdsim.devices.engine.shared_cell import SharedCell

Report = Callable[[int, LocalRoundResult], None]


class WakeUp(simpy.Event):
    """What a device waits for between rounds. It may ring later: one event then is both the call and the wait."""

    def ring(self, after_s: float) -> None:
        """Ring after some time."""
        self._ok, self._value = True, None
        self.env.schedule(self, delay=after_s)


class DeviceProcess:
    """A device and its process, which sleeps until the server calls."""

    __slots__ = ("_bell", "_env", "_round", "_watcher", "cell", "device", "process", "work")

    _bell: WakeUp

    def __init__(self, env: simpy.Environment, device: Device, work: float, cell: SharedCell | None) -> None:
        self._env, self.device, self.work, self.cell = env, device, work, cell
        self._watcher: simpy.Process | None = None
        self._round: tuple[RoundRequest, LocalRoundResult, Report, float, Ends | None] | None = None
        self.process = env.process(self._live())

    def call(self, request: RoundRequest, result: LocalRoundResult, free_frac: float, report: Report) -> None:
        """Ask a device that has checked in to do its round; `report` is told when it is over.

        Where nothing can come in between, the whole round is one wait, up to its end; whoever watches the
        device sees it go phase by phase, with the same result.
        """
        device, now_s = self.device, self._env.now
        alone = self.cell is None and not device.watched
        ends_s = closed_form_ends(device, request, self.work, free_frac) if alone else None
        self._round = request, result, report, free_frac, ends_s
        self._bell.ring(0.0 if ends_s is None else delay_s(now_s, ends_s[2]))

    def watch(self) -> None:
        """Wake the device at every change from now on."""
        self._watcher = self._env.process(watch(self._env, self.device))

    def _live(self) -> Generator[simpy.Event, Any, None]:
        env, device = self._env, self.device
        self._bell = WakeUp(env)
        while True:
            closed = False
            try:
                yield self._bell
            except simpy.Interrupt:
                if self._round is None or self._round[4] is None:
                    # A word about a cell that this device had left at the very same instant.
                    continue
                closed = True
            assert self._round is not None
            request, result, report, free_frac, ends_s = self._round
            self._round, self._bell = None, WakeUp(env)
            if ends_s is None:
                yield from race(
                    Track(env, device, self.cell, self.process), request, self.work, result, free_frac
                )
            elif closed:
                close(device, request, result, ends_s, env.now)
            else:
                complete(device, request, result, ends_s)
            report(device.client, result)
            if self._watcher is not None:
                self._watcher.interrupt()


def watch(env: simpy.Environment, device: Device) -> Generator[simpy.Event, Any, None]:
    """Wake a device at each of its changes, so that they are told in the order of time.

    It is interrupted after each round, since work that drained the battery brings the next change nearer.
    """
    while True:
        try:
            yield env.timeout(delay_s(env.now, device.next_s)) if device.next_s < math.inf else env.event()
        except simpy.Interrupt:
            continue
        device.advance(env.now)
