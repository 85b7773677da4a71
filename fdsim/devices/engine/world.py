"""The world: devices and server on one SimPy clock, run lazily, one trace round at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np
import simpy

from fdsim.devices.config.outages import Timeline
from fdsim.devices.config.simulation import SimulationConfig, check, hits
from fdsim.devices.engine import gc_pause
from fdsim.devices.engine.device import Device
from fdsim.devices.engine.eligible import is_eligible
from fdsim.devices.engine.local_round import (
    ROUND_CLOSED,
    LocalRound,
    LocalRoundResult,
    RoundRequest,
    delay_s,
)
from fdsim.devices.engine.lookahead import PART, Lookahead, OnPart, is_possible
from fdsim.devices.engine.round_ledger import RoundLedger
from fdsim.devices.engine.shared_cell import SharedCell
from fdsim.devices.engine.surroundings import OnEvent, OutageState
from fdsim.devices.models.spells import HOUR_S
from fdsim.rng import ClientStreams, stream
from fdsim.trace import NONE, Cause, Outcome, TraceRound


class World:
    """Devices, cells and a server on one clock."""

    def __init__(
        self, config: SimulationConfig, on_event: OnEvent | None = None, on_part: OnPart | None = None
    ) -> None:
        check(config)
        self.config = config
        self.start_s = config.server.start_hour * HOUR_S
        self.env = simpy.Environment(initial_time=self.start_s)
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
        config = self.config
        cells = {cell.name: SharedCell(self.env, cell) for cell in config.cells}
        timelines = [
            Timeline(outage.spells(stream(config.seed, "trouble", i)))
            for i, outage in enumerate(config.outages)
        ]
        streams = ClientStreams(config.seed, config.devices)
        for group in config.fleet:
            hitting = [i for i, outage in enumerate(config.outages) if hits(outage, group)]
            for _ in range(group.count):
                client = len(self.devices)
                if on_part is not None and client % PART == PART - 1:
                    on_part((client + 1) / config.devices, None)
                outages = [OutageState(timelines[i], config.outages[i]) for i in hitting]
                device = Device(client, group, config.server.eligibility, streams, outages=outages)
                device.cell = cells.get(group.cell)
                device.work = group.compute.work(config.workload.cost, float(config.workload.samples[client]))
                device.advance(self.start_s)
                self.devices.append(device)

    def next_round(self, round_index: int) -> TraceRound:
        """Let the world live until a round is over, and return it."""
        with gc_pause.paused():
            made: TraceRound = self.env.run(until=self.env.process(self.serve(round_index)))  # type: ignore[assignment]
        return made

    def live_until(self, to_s: float) -> None:
        """Let all devices live up to a time, after the last round; before it, some may be ahead of the clock."""
        with gc_pause.paused():
            for device in self.devices:
                device.advance(to_s)

    def serve(self, round_index: int) -> Generator[simpy.Event, Any, TraceRound]:
        """Run one round from its start to its close."""
        server, env, request = self.config.server, self.env, self._request(round_index)
        if request.start_s > env.now:
            yield env.timeout(delay_s(env.now, request.start_s))
        ledger = self._lookahead.ledger(round_index) if self._lookahead else self._check_in(request)
        target = min(server.selection.target(len(self.devices)), len(ledger.selected))
        called = sorted(ledger.called)
        if called:
            yield from self._run_called(ledger, target if server.over_selection > 1.0 else len(called))
        if self._lookahead:
            last_s = ledger.last_end_s()
            if last_s > env.now:
                yield env.timeout(delay_s(env.now, last_s))
            self._lookahead.resume(called)
        made = ledger.as_trace(len(self.devices))
        if len(made.completed) < server.min_reports_frac * target:
            abandoned = made.completed
            made.outcome[abandoned], made.cause[abandoned] = Outcome.dropped, Cause.abandoned
        return made

    def _request(self, round_index: int) -> RoundRequest:
        server, workload = self.config.server, self.config.workload
        # A round starts when it is planned, or when the one before it is over.
        start_s = max(self.start_s + round_index * server.round_interval_s, float(self.env.now))
        return RoundRequest(
            round_index=round_index,
            start_s=start_s,
            deadline_s=start_s + server.deadline_s,
            bytes_down=workload.bytes_down,
            bytes_up=workload.bytes_up,
            pause_on_lapse=server.on_lapse == "pause",
        )

    def _open_round(self, round_index: int) -> RoundLedger:
        return RoundLedger(self._request(round_index), self._select(round_index))

    def _check_in(self, request: RoundRequest) -> RoundLedger:
        """Select clients, and let their devices check in, ascending; take no time."""
        ledger = RoundLedger(request, self._select(request.round_index))
        for client in ledger.selected.tolist():
            result = ledger.check_in(self.devices[client])
            if result is not None:
                ledger.called[client] = result
        return ledger

    def _select(self, round_index: int) -> np.ndarray:
        server, clients = self.config.server, np.arange(len(self.devices))
        if server.selection.pool == "eligible":
            for device in self.devices:
                device.advance(self.env.now)
            clients = clients[[is_eligible(device) for device in self.devices]]
        target = server.selection.target(len(self.devices))
        wanted = min(len(clients), math.ceil(target * server.over_selection - 1e-9))
        return server.selection.select(clients, wanted, stream(self.config.seed, "selection", round_index))

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
    """Simulate a fleet and yield each round as soon as it is closed; memory does not grow with the rounds.

    `on_event` is told every change of state of every device in the order of time; `on_time` the simulated
    time, at the close of each round; `on_part` the progress of a large fleet in between.
    """
    world = World(config, on_event, on_part)
    with gc_pause.frozen():
        for round_index in range(config.rounds):
            made = world.next_round(round_index)
            if on_time is not None:
                on_time(float(world.env.now))
            yield made
