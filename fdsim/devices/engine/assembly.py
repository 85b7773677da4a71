"""What a world is put together from: its devices, what the server asks of them, whom it selects, when a round counts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np

from fdsim.devices.config.outages import Timeline
from fdsim.devices.config.simulation import SimulationConfig, hits
from fdsim.devices.engine.device import Device
from fdsim.devices.engine.local_round import RoundRequest
from fdsim.devices.engine.surroundings import OutageState
from fdsim.devices.models.spells import HOUR_S
from fdsim.rng import ClientStreams, stream
from fdsim.trace import Cause, Outcome, TraceRound


def start_s(config: SimulationConfig) -> float:
    """Return when round 0 is planned, s since midnight of day 0."""
    return config.server.start_hour * HOUR_S


def devices_of(config: SimulationConfig, clients: Iterable[int]) -> Iterator[Device]:
    """Yield the devices of some clients, ascending, each as it is when round 0 is planned."""
    timelines = [
        Timeline(outage.spells(stream(config.seed, "trouble", i))) for i, outage in enumerate(config.outages)
    ]
    streams, begins_s = ClientStreams(config.seed, config.devices), start_s(config)
    groups, end = iter(config.fleet), 0
    for client in clients:
        while client >= end:
            group = next(groups)
            end += group.count
            hitting = [i for i, outage in enumerate(config.outages) if hits(outage, group)]
        outages = [OutageState(timelines[i], config.outages[i]) for i in hitting]
        device = Device(client, group, config.server.eligibility, streams, outages=outages)
        device.work = group.compute.work(config.workload.cost, float(config.workload.samples[client]))
        device.advance(begins_s)
        yield device


def request_of(config: SimulationConfig, round_index: int, *, now_s: float = -math.inf) -> RoundRequest:
    """Return what the server asks in a round, which starts when it is planned, or now if that is later."""
    server, workload = config.server, config.workload
    begins_s = max(start_s(config) + round_index * server.round_interval_s, now_s)
    return RoundRequest(
        round_index=round_index,
        start_s=begins_s,
        deadline_s=begins_s + server.deadline_s,
        bytes_down=workload.bytes_down,
        bytes_up=workload.bytes_up,
        pause_on_lapse=server.on_lapse == "pause",
    )


def selected_of(config: SimulationConfig, round_index: int, candidates: np.ndarray) -> np.ndarray:
    """[S] Return whom the server selects for a round among the candidates, ascending."""
    server = config.server
    target = server.selection.target_of(config.devices)
    wanted = min(len(candidates), math.ceil(target * server.over_selection - 1e-9))
    return server.selection.selected_from(candidates, wanted, stream(config.seed, "selection", round_index))


def abandon_below_quorum(config: SimulationConfig, made: TraceRound, target: int) -> None:
    """Take the reports of a round back if they are too few for the server to use any."""
    if len(made.completed) < config.server.min_reports_frac * target:
        abandoned = made.completed
        made.outcome[abandoned], made.cause[abandoned] = Outcome.dropped, Cause.abandoned
