"""The world: devices and server as SimPy processes, run lazily, one trace round at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np
import simpy

from fdsim.devices.config.outages import Timeline
from fdsim.devices.config.simulation import FleetSetting, check, hits
from fdsim.devices.engine import gc_pause as collector
from fdsim.devices.engine.device import Device
from fdsim.devices.engine.device_process import Participant
from fdsim.devices.engine.local_round import ROUND_CLOSED, Answer, Job, delay_s
from fdsim.devices.engine.lookahead import PART, Foresight, OnPart, is_possible
from fdsim.devices.engine.round_ledger import RollCall, pack_refused
from fdsim.devices.engine.shared_cell import SharedCell
from fdsim.devices.engine.surroundings import OnEvent, Outage
from fdsim.devices.models.spells import HOUR_S
from fdsim.rng import ClientStreams, stream
from fdsim.trace import NONE, Cause, Network, Outcome, Phase, TraceRound

_CHECK_IN, _NO_NETWORK = Phase.check_in, Network.none


class World:
    """Devices, cells and a server on one clock."""

    def __init__(
        self, setting: FleetSetting, on_event: OnEvent | None = None, on_part: OnPart | None = None
    ) -> None:
        check(setting)
        self.setting, self._watched = setting, on_event is not None
        with collector.at_rest():
            self._build(on_event, on_part)
        self._foresight: Foresight | None = None
        if not self._watched and is_possible(setting):
            self._foresight = Foresight(
                setting, self.participants, choose=self._choose, job=self._job, on_part=on_part
            )

    def _build(self, on_event: OnEvent | None, on_part: OnPart | None) -> None:
        setting = self.setting
        self.start_s = setting.server.start_hour * HOUR_S
        self.env = simpy.Environment(initial_time=self.start_s)
        cells = {cell.name: SharedCell(self.env, cell) for cell in setting.cells}
        timelines = [
            Timeline(t.spells(stream(setting.seed, "trouble", i))) for i, t in enumerate(setting.trouble)
        ]
        streams = ClientStreams(setting.seed, setting.devices)
        self.participants: list[Participant] = []
        for group in setting.fleet:
            hitting = [i for i, t in enumerate(setting.trouble) if hits(t, group)]
            for _ in range(group.count):
                outages = [Outage(timelines[i], setting.trouble[i].takes) for i in hitting]
                client = len(self.participants)
                if on_part is not None and client % PART == PART - 1:
                    on_part((client + 1) / setting.devices, None)
                device = Device(client, group, setting.server.eligibility, streams, outages=outages)
                device.advance(self.start_s)
                work = group.compute.work(setting.workload.cost, float(setting.workload.samples[client]))
                self.participants.append(Participant(self.env, device, work, cells.get(group.cell)))
                if on_event is not None:
                    device.tell(on_event)
                    self.participants[-1].watch()

    def next_round(self, round_index: int) -> TraceRound:
        """Lets the world go on until a round is over."""
        with collector.at_rest():
            made: TraceRound = self.env.run(until=self.env.process(self.serve(round_index)))  # type: ignore[assignment]
        return made

    def live_until(self, to_s: float) -> None:
        """Lets all devices live up to a time, after the last round; before it, some may be ahead of the clock."""
        with collector.at_rest():
            for participant in self.participants:
                participant.device.advance(to_s)

    def serve(self, round_index: int) -> Generator[simpy.Event, Any, TraceRound]:
        """Runs one round from its start to its close."""
        server, env, job = self.setting.server, self.env, self._job(round_index)
        if job.start_s > env.now:
            yield env.timeout(delay_s(env.now, job.start_s))
        roll_call = self._foresight.roll_call(round_index) if self._foresight else self._call_roll(job)
        target = min(server.selection.target(len(self.participants)), roll_call.asked)
        wanted = target if server.over_selection > 1.0 else roll_call.asked
        called, running = sorted(roll_call.called), set(roll_call.called)
        closed = env.event()
        reports = 0

        def report(client: int, answer: Answer) -> None:
            nonlocal reports
            running.discard(client)
            reports += answer.cause == NONE
            if (reports >= wanted or not running) and not closed.triggered:
                closed.succeed()

        for client in called:
            self.participants[client].call(job, *roll_call.called[client], report)
        if running:
            yield closed
            for client in sorted(running):
                self.participants[client].process.interrupt(ROUND_CLOSED)
            if running:
                # Interrupts come before anything else at this instant; all have answered when it is over.
                yield env.timeout(0.0)
        if self._foresight:
            last_s = roll_call.last_end_s()
            if last_s > env.now:
                yield env.timeout(delay_s(env.now, last_s))
            self._foresight.go_on(called)
        return self._close(roll_call, job, target)

    def _call_roll(self, job: Job) -> RollCall:
        """Asks devices, ascending, whether they can work now; takes no time."""
        chosen = self._choose(job.round_index).tolist()
        roll_call, now_s = RollCall(len(chosen)), job.start_s
        for client in chosen:
            device = self.participants[client].device
            device.advance(now_s)
            cause, soc = device.obstacle(_CHECK_IN), device.charge_j / device.full_j
            device.note("check_in", float(job.round_index))
            if cause is None:
                free_frac = 1.0 - device.group.compute.load(device.rng)
                roll_call.called[client] = Answer(now_s, soc, device.link.network), free_frac
            else:
                device.note("dropped", float(cause))
                network = device.link.network if device.online else _NO_NETWORK
                roll_call.refused += pack_refused(client, cause, network, soc)
        return roll_call

    def _choose(self, round_index: int) -> np.ndarray:
        server, clients = self.setting.server, np.arange(len(self.participants))
        if server.selection.pool == "eligible":
            fits = []
            for participant in self.participants:
                participant.device.advance(self.env.now)
                fits.append(participant.device.obstacle(Phase.check_in) is None)
            clients = clients[np.array(fits)]
        target = server.selection.target(len(self.participants))
        wanted = min(len(clients), math.ceil(target * server.over_selection - 1e-9))
        return server.selection.choose(clients, wanted, stream(self.setting.seed, "selection", round_index))

    def _job(self, round_index: int) -> Job:
        server, workload = self.setting.server, self.setting.workload
        # A round starts when it is planned, or when the one before it is over.
        start_s = max(self.start_s + round_index * server.round_interval_s, float(self.env.now))
        return Job(
            round_index=round_index,
            start_s=start_s,
            deadline_s=start_s + server.deadline_s,
            bytes_down=workload.bytes_down,
            bytes_up=workload.bytes_up,
            pause_on_lapse=server.on_lapse == "pause",
        )

    def _close(self, roll_call: RollCall, job: Job, target: int) -> TraceRound:
        made = roll_call.as_trace(job, len(self.participants))
        if len(made.completed) < self.setting.server.min_reports_frac * target:
            abandoned = made.completed
            made.outcome[abandoned] = Outcome.dropped
            made.cause[abandoned] = Cause.abandoned
        return made


def simulate(
    setting: FleetSetting,
    *,
    on_event: OnEvent | None = None,
    on_time: Callable[[float], None] | None = None,
    on_part: OnPart | None = None,
) -> Iterator[TraceRound]:
    """Simulates a fleet and yields each round as soon as it is closed; memory does not grow with the rounds.

    `on_event` is told every change of state of every device in the order of time; `on_time` the simulated
    time, at the close of each round; `on_part` how far a large fleet is in between.
    """
    world = World(setting, on_event, on_part)
    with collector.kept_apart():
        for round_index in range(setting.rounds):
            made = world.next_round(round_index)
            if on_time is not None:
                on_time(float(world.env.now))
            yield made
