"""The world: devices and server on one SimPy clock, run lazily, one trace round at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np
import simpy

from fdsim.devices.config.simulation import SimulationConfig, check
from fdsim.devices.engine import gc_pause
from fdsim.devices.engine.assembly import (
    abandon_below_quorum,
    devices_of,
    request_of,
    selected_of,
    start_s,
)
from fdsim.devices.engine.device import Device
from fdsim.devices.engine.eligible import is_eligible
from fdsim.devices.engine.local_round import (
    ROUND_CLOSED,
    LocalRound,
    LocalRoundResult,
    delay_s,
)
from fdsim.devices.engine.lookahead import PART, Lookahead, OnPart, is_possible
from fdsim.devices.engine.round_ledger import RoundLedger
from fdsim.devices.engine.shared_cell import SharedCell
from fdsim.devices.engine.surroundings import OnEvent
from fdsim.trace import NONE, TraceRound


class World:
    """Devices, cells and a server on one clock.

    `on_event` is told every change of state of every device in the order of time; `on_part` the progress of a large
    fleet between two rounds.
    """

    def __init__(
        self, config: SimulationConfig, on_event: OnEvent | None = None, on_part: OnPart | None = None
    ) -> None:
        check(config)
        self.config = config
        self.env = simpy.Environment(initial_time=start_s(config))
        self.devices: list[Device] = []
        with gc_pause.paused():
            self._build(on_part)
        self._watchers: list[simpy.Process] = []
        self._lookahead: Lookahead | None = None
        if on_event is not None:
            for device in self.devices:
                device.tell(on_event)
                self._watchers.append(self.env.process(self._watch(device)))
        elif is_possible(config):
            self._lookahead = Lookahead(config, self.devices, self._open_round, on_part=on_part)

    def _build(self, on_part: OnPart | None) -> None:
        cells = {cell.name: SharedCell(self.env, cell) for cell in self.config.cells}
        for device in devices_of(self.config, range(self.config.devices)):
            device.cell = cells.get(device.group.cell)
            self.devices.append(device)
            if on_part is not None and len(self.devices) % PART == 0:
                on_part(len(self.devices) / self.config.devices, None)

    def rounds(self, on_time: Callable[[float], None] | None = None) -> Iterator[TraceRound]:
        """Let the world live from round to round, and yield each as soon as it is closed.

        Memory does not grow with the rounds. `on_time` is told the simulated time at the close of each.
        """
        env = self.env
        with gc_pause.frozen():
            for round_index in range(self.config.rounds):
                with gc_pause.paused():
                    made: TraceRound = env.run(until=env.process(self.serve(round_index)))  # type: ignore[assignment]
                if on_time is not None:
                    on_time(float(env.now))
                yield made

    def live_until(self, to_s: float) -> None:
        """Let all devices live up to a time, after the last round; before it, some may be ahead of the clock."""
        with gc_pause.paused():
            for device in self.devices:
                device.advance(to_s)

    def serve(self, round_index: int) -> Generator[simpy.Event, Any, TraceRound]:
        """Run one round from its start to its close."""
        server, env = self.config.server, self.env
        request = request_of(self.config, round_index, now_s=float(env.now))
        if request.start_s > env.now:
            yield env.timeout(delay_s(env.now, request.start_s))
        if self._lookahead:
            ledger = self._lookahead.ledger(round_index)
        else:
            ledger = RoundLedger(request, self._select(round_index))
            # In ascending order, and without any time passing.
            for client in ledger.selected.tolist():
                result = ledger.check_in(self.devices[client])
                if result is not None:
                    ledger.called[client] = result
        target = min(server.selection.target_of(len(self.devices)), len(ledger.selected))
        called = sorted(ledger.called)
        if called:
            yield from self._run_called(ledger, target if server.over_selection > 1.0 else len(called))
        if self._lookahead:
            last_s = ledger.last_end_s()
            if last_s > env.now:
                yield env.timeout(delay_s(env.now, last_s))
            self._lookahead.resume(called)
        made = ledger.as_trace(len(self.devices))
        abandon_below_quorum(self.config, made, target)
        return made

    def _open_round(self, round_index: int) -> RoundLedger:
        request = request_of(self.config, round_index, now_s=float(self.env.now))
        return RoundLedger(request, self._select(round_index))

    def _select(self, round_index: int) -> np.ndarray:
        clients = np.arange(len(self.devices))
        if self.config.server.selection.pool == "eligible":
            for device in self.devices:
                device.advance(self.env.now)
            clients = clients[[is_eligible(device) for device in self.devices]]
        return selected_of(self.config, round_index, clients)

    def _run_called(self, ledger: RoundLedger, wanted: int) -> Generator[simpy.Event, Any, None]:
        """Run the local rounds of all called, until as many as wanted have reported or all have ended."""
        env, closed, reports = self.env, self.env.event(), 0
        running: dict[int, simpy.Process] = {}

        def report(client: int, result: LocalRoundResult) -> None:
            nonlocal reports
            del running[client]
            reports += result.cause == NONE
            if (reports >= wanted or not running) and not closed.triggered:
                closed.succeed()
            if self._watchers:
                self._watchers[client].interrupt()

        for client in sorted(ledger.called):
            local_round = LocalRound(env, self.devices[client], ledger.request, ledger.called[client])
            running[client] = env.process(local_round.run(report))
        yield closed
        for process in running.values():
            process.interrupt(ROUND_CLOSED)
        if running:
            # Interrupts come before anything else at this instant; all have reported when it is over.
            yield env.timeout(0.0)

    def _watch(self, device: Device) -> Generator[simpy.Event, Any, None]:
        """Wake a device at each of its changes, so that the event log is in the order of time.

        It is interrupted after each local round, since work that drained the battery brings the next change nearer.
        """
        env = self.env
        while True:
            try:
                yield (
                    env.timeout(delay_s(env.now, device.next_s)) if device.next_s < math.inf else env.event()
                )
            except simpy.Interrupt:
                continue
            device.advance(env.now)


def simulate(
    config: SimulationConfig,
    *,
    on_event: OnEvent | None = None,
    on_time: Callable[[float], None] | None = None,
    on_part: OnPart | None = None,
) -> Iterator[TraceRound]:
    """Simulate a fleet on one clock, round by round; see `World` and its `rounds` for who is told what."""
    return World(config, on_event, on_part).rounds(on_time)
