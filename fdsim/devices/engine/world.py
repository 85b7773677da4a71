"""The world: devices and server as SimPy processes, run lazily, one trace round at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np
import simpy

from fdsim.devices.config.outages import Timeline
from fdsim.devices.config.simulation import SimulationConfig, check, hits
from fdsim.devices.engine import gc_pause as collector
from fdsim.devices.engine.device import Device
from fdsim.devices.engine.device_process import DeviceProcess
from fdsim.devices.engine.local_round import ROUND_CLOSED, LocalRoundResult, RoundRequest, delay_s
from fdsim.devices.engine.lookahead import PART, Lookahead, OnPart, is_possible
from fdsim.devices.engine.round_ledger import RoundLedger, pack_refused
from fdsim.devices.engine.shared_cell import SharedCell
from fdsim.devices.engine.surroundings import OnEvent, OutageState
from fdsim.devices.models.spells import HOUR_S
from fdsim.rng import ClientStreams, stream
from fdsim.trace import NONE, Cause, Network, Outcome, Phase, TraceRound

_CHECK_IN, _NO_NETWORK = Phase.check_in, Network.none


class World:
    """Devices, cells and a server on one clock."""

    def __init__(
        self, config: SimulationConfig, on_event: OnEvent | None = None, on_part: OnPart | None = None
    ) -> None:
        check(config)
        self.config, self._watched = config, on_event is not None
        with collector.at_rest():
            self._build(on_event, on_part)
        self._lookahead: Lookahead | None = None
        if not self._watched and is_possible(config):
            self._lookahead = Lookahead(
                config, self.processes, choose=self._choose, request=self._job, on_part=on_part
            )

    def _build(self, on_event: OnEvent | None, on_part: OnPart | None) -> None:
        config = self.config
        self.start_s = config.server.start_hour * HOUR_S
        self.env = simpy.Environment(initial_time=self.start_s)
        cells = {cell.name: SharedCell(self.env, cell) for cell in config.cells}
        timelines = [
            Timeline(t.spells(stream(config.seed, "trouble", i))) for i, t in enumerate(config.outages)
        ]
        streams = ClientStreams(config.seed, config.devices)
        self.processes: list[DeviceProcess] = []
        for group in config.fleet:
            hitting = [i for i, t in enumerate(config.outages) if hits(t, group)]
            for _ in range(group.count):
                outages = [OutageState(timelines[i], config.outages[i].takes) for i in hitting]
                client = len(self.processes)
                if on_part is not None and client % PART == PART - 1:
                    on_part((client + 1) / config.devices, None)
                device = Device(client, group, config.server.eligibility, streams, outages=outages)
                device.advance(self.start_s)
                work = group.compute.work(config.workload.cost, float(config.workload.samples[client]))
                self.processes.append(DeviceProcess(self.env, device, work, cells.get(group.cell)))
                if on_event is not None:
                    device.tell(on_event)
                    self.processes[-1].watch()

    def next_round(self, round_index: int) -> TraceRound:
        """Let the world go on until a round is over."""
        with collector.at_rest():
            made: TraceRound = self.env.run(until=self.env.process(self.serve(round_index)))  # type: ignore[assignment]
        return made

    def live_until(self, to_s: float) -> None:
        """Let all devices live up to a time, after the last round; before it, some may be ahead of the clock."""
        with collector.at_rest():
            for process in self.processes:
                process.device.advance(to_s)

    def serve(self, round_index: int) -> Generator[simpy.Event, Any, TraceRound]:
        """Run one round from its start to its close."""
        server, env, request = self.config.server, self.env, self._job(round_index)
        if request.start_s > env.now:
            yield env.timeout(delay_s(env.now, request.start_s))
        round_ledger = (
            self._lookahead.round_ledger(round_index) if self._lookahead else self._call_roll(request)
        )
        target = min(server.selection.target(len(self.processes)), round_ledger.asked)
        wanted = target if server.over_selection > 1.0 else round_ledger.asked
        called, running = sorted(round_ledger.called), set(round_ledger.called)
        closed = env.event()
        reports = 0

        def report(client: int, result: LocalRoundResult) -> None:
            nonlocal reports
            running.discard(client)
            reports += result.cause == NONE
            if (reports >= wanted or not running) and not closed.triggered:
                closed.succeed()

        for client in called:
            self.processes[client].call(request, *round_ledger.called[client], report)
        if running:
            yield closed
            for client in sorted(running):
                self.processes[client].process.interrupt(ROUND_CLOSED)
            if running:
                # Interrupts come before anything else at this instant; all have answered when it is over.
                yield env.timeout(0.0)
        if self._lookahead:
            last_s = round_ledger.last_end_s()
            if last_s > env.now:
                yield env.timeout(delay_s(env.now, last_s))
            self._lookahead.go_on(called)
        return self._close(round_ledger, request, target)

    def _call_roll(self, request: RoundRequest) -> RoundLedger:
        """Ask devices, ascending, whether they can work now; take no time."""
        chosen = self._choose(request.round_index).tolist()
        round_ledger, now_s = RoundLedger(len(chosen)), request.start_s
        for client in chosen:
            device = self.processes[client].device
            device.advance(now_s)
            cause, soc = device.obstacle(_CHECK_IN), device.charge_j / device.full_j
            device.note("check_in", float(request.round_index))
            if cause is None:
                free_frac = 1.0 - device.group.compute.load(device.rng)
                round_ledger.called[client] = LocalRoundResult(now_s, soc, device.link.network), free_frac
            else:
                device.note("dropped", float(cause))
                network = device.link.network if device.online else _NO_NETWORK
                round_ledger.refused += pack_refused(client, cause, network, soc)
        return round_ledger

    def _choose(self, round_index: int) -> np.ndarray:
        server, clients = self.config.server, np.arange(len(self.processes))
        if server.selection.pool == "eligible":
            fits = []
            for process in self.processes:
                process.device.advance(self.env.now)
                fits.append(process.device.obstacle(Phase.check_in) is None)
            clients = clients[np.array(fits)]
        target = server.selection.target(len(self.processes))
        wanted = min(len(clients), math.ceil(target * server.over_selection - 1e-9))
        return server.selection.choose(clients, wanted, stream(self.config.seed, "selection", round_index))

    def _job(self, round_index: int) -> RoundRequest:
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

    def _close(self, round_ledger: RoundLedger, request: RoundRequest, target: int) -> TraceRound:
        made = round_ledger.as_trace(request, len(self.processes))
        if len(made.completed) < self.config.server.min_reports_frac * target:
            abandoned = made.completed
            made.outcome[abandoned] = Outcome.dropped
            made.cause[abandoned] = Cause.abandoned
        return made


def simulate(
    config: SimulationConfig,
    *,
    on_event: OnEvent | None = None,
    on_time: Callable[[float], None] | None = None,
    on_part: OnPart | None = None,
) -> Iterator[TraceRound]:
    """Simulate a fleet and yield each round as soon as it is closed; memory does not grow with the rounds.

    `on_event` is told every change of state of every device in the order of time; `on_time` the simulated
    time, at the close of each round; `on_part` how far a large fleet is in between.
    """
    world = World(config, on_event, on_part)
    with collector.kept_apart():
        for round_index in range(config.rounds):
            made = world.next_round(round_index)
            if on_time is not None:
                on_time(float(world.env.now))
            yield made
