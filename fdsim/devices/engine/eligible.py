"""When devices would be eligible if nobody ever asked them: the availability of a simulated fleet."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fdsim.devices.config.fleet import DeviceGroup
from fdsim.devices.config.server import Eligibility
from fdsim.devices.engine.device import Device
from fdsim.rng import ClientStreams
from fdsim.trace import Phase
from fdsim.trace.sessions import Observation

Condition = Callable[[Device], bool]


def is_eligible(device: Device) -> bool:
    """Whether a device could check in now."""
    return device.obstacle(Phase.check_in) is None


def availability(
    fleet: tuple[DeviceGroup, ...],
    rule: Eligibility,
    seed: int,
    *,
    days: float,
    condition: Condition = is_eligible,
) -> list[Observation]:
    """Let a fleet live for some days and note when each device meets a condition, by default the rule's."""
    end_s = days * 86_400.0
    streams = ClientStreams(seed, sum(group.count for group in fleet))
    found = []
    client = 0
    for group in fleet:
        for _ in range(group.count):
            device = Device(client, group, rule, streams, outages=[])
            found.append(Observation(0.0, end_s, _intervals(device, end_s, condition)))
            client += 1
    return found


def _intervals(device: Device, end_s: float, condition: Condition) -> np.ndarray:
    intervals: list[tuple[float, float]] = []
    since_s = 0.0 if condition(device) else None
    while device.next_s < end_s:
        now_s = device.next_s
        device.advance(now_s)
        holds = condition(device)
        if holds and since_s is None:
            since_s = now_s
        elif not holds and since_s is not None:
            if now_s > since_s:
                intervals.append((since_s, now_s))
            since_s = None
    if since_s is not None and end_s > since_s:
        intervals.append((since_s, end_s))
    return np.array(intervals).reshape(-1, 2)
