"""Which devices are eligible: what keeps one from working, and when those of a fleet that is never called would be."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fdsim.devices.config.fleet import DeviceGroup
from fdsim.devices.config.server import Eligibility
from fdsim.devices.engine.device import Device
from fdsim.rng import ClientStreams
from fdsim.trace import Cause, Network, Phase
from fdsim.trace.sessions import Observation

_CHECK_IN, _TRAIN, _WIFI = Phase.check_in, Phase.train, Network.wifi

Condition = Callable[[Device], bool]


def obstacle(device: Device, phase: Phase) -> Cause | None:
    """Return what keeps a device from working in a phase, the gravest first, or None.

    The link matters at check-in, download and upload; during training only if it must be unmetered.
    """
    rule, battery, around = device.rule, device.battery, device.surroundings
    link = around.link
    if around.crashed:
        return Cause.crashed
    if battery.empty:
        return Cause.battery_empty
    if phase is not _TRAIN or rule.requires_unmetered:
        if not link.online:
            return Cause.offline if phase is _CHECK_IN else Cause.link_lost
        if around.outages and around.taken(link.network.name):
            return Cause.outage
    if battery.charge_j < battery.floor_soc * battery.full_j:
        return Cause.battery_low
    if rule.requires_charging:
        if not device.on_charger:
            return Cause.unplugged
        if around.taken("power"):
            return Cause.outage
    if rule.requires_unmetered and link.network is not _WIFI:
        return Cause.metered
    if rule.requires_idle and around.screen_on:
        return Cause.in_use
    return None


def working_network(device: Device) -> Network:
    """Return the network that a device is on, or none if it is empty or an outage has taken the network away."""
    network = device.surroundings.link.network
    if device.battery.empty or (device.surroundings.outages and device.surroundings.taken(network.name)):
        return Network.none
    return network


def is_eligible(device: Device) -> bool:
    """Return whether a device could check in now."""
    return obstacle(device, _CHECK_IN) is None


def availability(
    fleet: tuple[DeviceGroup, ...],
    rule: Eligibility,
    seed: int,
    *,
    days: float,
    condition: Condition = is_eligible,
) -> list[Observation]:
    """Let a fleet live for some days and note when each device meets a condition, by default that it is eligible."""
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
