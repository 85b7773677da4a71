"""The world: devices and server as SimPy processes, run lazily, one trace round at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from dataclasses import fields
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import simpy

from fdsim.devices import collector
from fdsim.devices.device import Device
from fdsim.devices.local_round import ROUND_CLOSED, Answer, Job, delay_s
from fdsim.devices.participant import Participant
from fdsim.devices.setting import FleetSetting, check, hits
from fdsim.devices.share import SharedCell
from fdsim.devices.spells import HOUR_S
from fdsim.devices.surroundings import OnEvent, Outage
from fdsim.devices.trouble import Timeline
from fdsim.rng import stream
from fdsim.trace import NONE, Cause, Network, Outcome, Phase, TraceRound, blank_round

_ANSWER_COLUMNS = tuple(field.name for field in fields(Answer))
_ROW = attrgetter(*_ANSWER_COLUMNS)
_CHECK_IN, _NO_NETWORK = Phase.check_in, Network.none


class CheckIns(NamedTuple):
    """Who was asked at the start of a round: those who work now, and those who could not, column by column."""

    answers: dict[int, Answer]
    refused: list[int]
    causes: list[int]
    socs: list[float]
    networks: list[int]


class World:
    """Devices, cells and a server on one clock."""

    def __init__(self, setting: FleetSetting, on_event: OnEvent | None = None) -> None:
        check(setting)
        self.setting, self._watched = setting, on_event is not None
        with collector.at_rest():
            self._build(on_event)

    def _build(self, on_event: OnEvent | None) -> None:
        setting = self.setting
        self.start_s = setting.server.start_hour * HOUR_S
        self.env = simpy.Environment(initial_time=self.start_s)
        cells = {cell.name: SharedCell(self.env, cell) for cell in setting.cells}
        timelines = [
            Timeline(t.spells(stream(setting.seed, "trouble", i))) for i, t in enumerate(setting.trouble)
        ]
        self.participants: list[Participant] = []
        for group in setting.fleet:
            hitting = [i for i, t in enumerate(setting.trouble) if hits(t, group)]
            for _ in range(group.count):
                outages = [Outage(timelines[i], setting.trouble[i].takes) for i in hitting]
                client = len(self.participants)
                device = Device(client, group, setting.server.eligibility, setting.seed, outages=outages)
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
        """Lets all devices live up to a time, between rounds."""
        with collector.at_rest():
            for participant in self.participants:
                participant.device.advance(to_s)

    def serve(self, round_index: int) -> Generator[simpy.Event, Any, TraceRound]:
        """Runs one round from its start to its close."""
        server, env = self.setting.server, self.env
        planned_s = self.start_s + round_index * server.round_interval_s
        if planned_s > env.now:
            yield env.timeout(delay_s(env.now, planned_s))
        start_s = env.now
        chosen = self._choose(round_index).tolist()
        target = min(server.selection.target(len(self.participants)), len(chosen))
        asked = self._check_in(chosen, round_index)
        answers, running = asked.answers, set(asked.answers)
        wanted = target if server.over_selection > 1.0 else len(chosen)
        job = self._job(round_index, start_s)
        closed = env.event()
        reports = 0

        def report(client: int, answer: Answer) -> None:
            nonlocal reports
            running.discard(client)
            reports += answer.cause == NONE
            if (reports >= wanted or not running) and not closed.triggered:
                closed.succeed()

        for client, answer in answers.items():
            self.participants[client].call(job, answer, report)
        if running:
            yield closed
            for client in sorted(running):
                self.participants[client].process.interrupt(ROUND_CLOSED)
            if running:
                # Interrupts come before anything else at this instant; all have answered when it is over.
                yield env.timeout(0.0)
        return self._close(round_index, start_s, asked, target)

    def _check_in(self, chosen: list[int], round_index: int) -> CheckIns:
        """Asks devices, ascending, whether they can work now; takes no time."""
        asked, now_s, participants = CheckIns({}, [], [], [], []), float(self.env.now), self.participants
        answers, refused, causes, socs, networks = asked
        for client in chosen:
            device = participants[client].device
            device.advance(now_s)
            cause, soc = device.obstacle(_CHECK_IN), device.charge_j / device.full_j
            if self._watched:
                device.note("check_in", float(round_index))
                if cause is not None:
                    device.note("dropped", float(cause))
            if cause is None:
                answers[client] = Answer(now_s, soc, device.link.network)
            else:
                # Most of a large fleet ends here: a few numbers, and neither a process nor a record of its own.
                refused.append(client)
                causes.append(cause)
                socs.append(soc)
                networks.append(device.link.network if device.online else _NO_NETWORK)
        return asked

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

    def _job(self, round_index: int, start_s: float) -> Job:
        server, workload = self.setting.server, self.setting.workload
        return Job(
            round_index=round_index,
            deadline_s=start_s + server.deadline_s,
            bytes_down=workload.bytes_down,
            bytes_up=workload.bytes_up,
            pause_on_lapse=server.on_lapse == "pause",
        )

    def _close(self, round_index: int, start_s: float, asked: CheckIns, target: int) -> TraceRound:
        answers = asked.answers
        end_s = max((answer.end_s for answer in answers.values()), default=start_s)
        made = blank_round(round_index, len(self.participants), start_s, end_s)
        clients = np.fromiter(answers, dtype=np.int64, count=len(answers))
        for name, values in zip(
            _ANSWER_COLUMNS, zip(*map(_ROW, answers.values()), strict=True), strict=False
        ):
            getattr(made, name)[clients] = values
        made.outcome[clients] = np.where(made.cause[clients] == NONE, Outcome.completed, Outcome.dropped)
        refused = np.array(asked.refused, dtype=np.int64)
        made.outcome[refused], made.phase[refused] = Outcome.dropped, Phase.check_in
        made.start_s[refused] = made.end_s[refused] = start_s
        made.soc_start[refused] = made.soc_end[refused] = asked.socs
        made.cause[refused], made.network[refused] = asked.causes, asked.networks
        if len(made.completed) < self.setting.server.min_reports_frac * target:
            abandoned = made.completed
            made.outcome[abandoned] = Outcome.dropped
            made.cause[abandoned] = Cause.abandoned
        return made


def simulate(
    setting: FleetSetting, *, on_event: OnEvent | None = None, on_time: Callable[[float], None] | None = None
) -> Iterator[TraceRound]:
    """Simulates a fleet and yields each round as soon as it is closed; memory does not grow with the rounds.

    `on_event` is told every change of state of every device in the order of time; `on_time` the simulated
    time, at the close of each round.
    """
    world = World(setting, on_event)
    with collector.kept_apart():
        for round_index in range(setting.rounds):
            made = world.next_round(round_index)
            if on_time is not None:
                on_time(float(world.env.now))
            yield made
