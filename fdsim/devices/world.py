"""The world: devices and server as SimPy processes, run lazily, one trace round at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import simpy

from fdsim.devices.device import Device, OnEvent, Outage
from fdsim.devices.fleet import DeviceGroup
from fdsim.devices.local_round import ROUND_CLOSED, Answer, Job, LocalRound, turned_away
from fdsim.devices.server import Server
from fdsim.devices.share import SharedCell
from fdsim.devices.spells import HOUR_S
from fdsim.devices.trouble import Cell, Timeline, Trouble
from fdsim.rng import stream
from fdsim.trace import Cause, Outcome, Phase, TraceRound, blank_round
from fdsim.workload import Workload


@dataclass(frozen=True)
class FleetSetting:
    """All that the simulation of a fleet depends on."""

    fleet: tuple[DeviceGroup, ...]
    server: Server
    workload: Workload
    rounds: int
    seed: int
    trouble: tuple[Trouble, ...] = ()
    cells: tuple[Cell, ...] = ()

    @property
    def devices(self) -> int:
        """The number of devices K."""
        return sum(group.count for group in self.fleet)

    @property
    def group_of_device(self) -> np.ndarray:
        """[K] the index of each device's group."""
        return np.repeat(np.arange(len(self.fleet)), [group.count for group in self.fleet])


class Participant:
    """A device and the SimPy process that runs its local rounds."""

    __slots__ = ("_call", "_cell", "_env", "device", "process")

    def __init__(self, env: simpy.Environment, device: Device, cell: SharedCell | None) -> None:
        self._env, self.device, self._cell = env, device, cell
        self._call = env.event()
        self.process = env.process(self._live())

    def call(self, job: Job, report: Callable[[int, Answer], None]) -> None:
        """Asks the device to take part in a round that starts now; `report` is told how it went."""
        self._call.succeed((job, report))

    def _live(self) -> Generator[simpy.Event, Any, None]:
        while True:
            try:
                job, report = yield self._call
            except simpy.Interrupt:
                # A word about a cell or a round that this device had left at the very same instant.
                continue
            self._call = self._env.event()
            answer = yield from LocalRound(self._env, self.device, job, self._cell).race()
            report(self.device.client, answer)


class World:
    """Devices, cells and a server on one clock."""

    def __init__(self, setting: FleetSetting, on_event: OnEvent | None = None) -> None:
        self.setting = setting
        self.start_s = setting.server.start_hour * HOUR_S
        self.env = simpy.Environment(initial_time=self.start_s)
        cells = {cell.name: SharedCell(self.env, cell) for cell in setting.cells}
        timelines = [
            Timeline(t.spells(stream(setting.seed, "trouble", i))) for i, t in enumerate(setting.trouble)
        ]
        self.participants: list[Participant] = []
        for group in setting.fleet:
            hits = [i for i, t in enumerate(setting.trouble) if _hits(t, group)]
            for _ in range(group.count):
                outages = [Outage(timelines[i], setting.trouble[i].takes) for i in hits]
                device = Device(len(self.participants), group, setting.seed, outages=outages)
                device.advance(self.start_s)
                self.participants.append(Participant(self.env, device, cells.get(group.cell)))
                if on_event is not None:
                    device.tell(on_event)
                    self.env.process(watch(self.env, device))
        self._work = [
            p.device.group.compute.work(
                setting.workload.cost, float(setting.workload.samples[p.device.client])
            )
            for p in self.participants
        ]

    def serve(self, round_index: int) -> Generator[simpy.Event, Any, TraceRound]:
        """Runs one round from its start to its close."""
        server, env = self.setting.server, self.env
        planned_s = self.start_s + round_index * server.round_interval_s
        if planned_s > env.now:
            yield env.timeout(planned_s - env.now)
        start_s = env.now
        answers: dict[int, Answer] = {}
        chosen = self._choose(round_index)
        target = min(server.selection.target(len(self.participants)), len(chosen))
        called: list[int] = []
        closed = env.event()

        def report(client: int, answer: Answer) -> None:
            answers[client] = answer
            enough = server.over_selection > 1.0 and sum(a.completed for a in answers.values()) >= target
            if (enough or len(answers) == len(chosen)) and not closed.triggered:
                closed.succeed()

        for client in chosen.tolist():
            device = self.participants[client].device
            device.advance(start_s)
            device.note("check_in", float(round_index))
            cause = device.obstacle(server.eligibility, Phase.check_in)
            if cause is None:
                called.append(client)
            else:
                answers[client] = turned_away(device, start_s, cause)
                device.note("dropped", float(cause))
        for client in called:
            self.participants[client].call(self._job(round_index, client, start_s), report)
        if called:
            yield closed
            late = [client for client in called if client not in answers]
            for client in late:
                self.participants[client].process.interrupt(ROUND_CLOSED)
            if late:
                # Interrupts come before anything else at this instant; the answers are in when it is over.
                yield env.timeout(0.0)
        return self._close(round_index, start_s, answers, target)

    def _choose(self, round_index: int) -> np.ndarray:
        server, clients = self.setting.server, np.arange(len(self.participants))
        if server.selection.pool == "eligible":
            fits = []
            for participant in self.participants:
                participant.device.advance(self.env.now)
                fits.append(participant.device.obstacle(server.eligibility, Phase.check_in) is None)
            clients = clients[np.array(fits)]
        target = server.selection.target(len(self.participants))
        wanted = min(len(clients), math.ceil(target * server.over_selection - 1e-9))
        return server.selection.choose(clients, wanted, stream(self.setting.seed, "selection", round_index))

    def _job(self, round_index: int, client: int, start_s: float) -> Job:
        server, workload = self.setting.server, self.setting.workload
        return Job(
            round_index=round_index,
            deadline_s=start_s + server.deadline_s,
            bytes_down=workload.bytes_down,
            bytes_up=workload.bytes_up,
            work=self._work[client],
            rule=server.eligibility,
            pause_on_lapse=server.on_lapse == "pause",
        )

    def _close(self, round_index: int, start_s: float, answers: dict[int, Answer], target: int) -> TraceRound:
        made = blank_round(round_index, len(self.participants), start_s, self.env.now)
        for client, answer in answers.items():
            made.outcome[client] = Outcome.completed if answer.completed else Outcome.dropped
            for name in Answer.__slots__:
                getattr(made, name)[client] = getattr(answer, name)
        if len(made.completed) < self.setting.server.min_reports_frac * target:
            abandoned = made.completed
            made.outcome[abandoned] = Outcome.dropped
            made.cause[abandoned] = Cause.abandoned
        return made


def _hits(trouble: Trouble, group: DeviceGroup) -> bool:
    if trouble.site:
        return group.site == trouble.site
    return not trouble.cell or group.cell == trouble.cell


def watch(env: simpy.Environment, device: Device) -> Generator[simpy.Event, Any, None]:
    """Wakes a device at each of its changes, so that they are told in the order of time."""
    while True:
        if device.next_s == math.inf:
            return
        yield env.timeout(max(0.0, device.next_s - env.now))
        device.advance(env.now)


def simulate(
    setting: FleetSetting, *, on_event: OnEvent | None = None, on_time: Callable[[float], None] | None = None
) -> Iterator[TraceRound]:
    """Simulates a fleet and yields each round as soon as it is closed; memory does not grow with the rounds.

    `on_event` is told every change of state of every device in the order of time; `on_time` the simulated
    time, at the close of each round.
    """
    world = World(setting, on_event)
    for round_index in range(setting.rounds):
        made: TraceRound = world.env.run(until=world.env.process(world.serve(round_index)))  # type: ignore[assignment]
        if on_time is not None:
            on_time(float(world.env.now))
        yield made
