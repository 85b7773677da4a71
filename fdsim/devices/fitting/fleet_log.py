"""The log of a simulated fleet that nobody asks to train, in the form of a measured one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fdsim.devices.config.fleet import DeviceGroup
from fdsim.devices.config.server import Eligibility
from fdsim.devices.engine.device import Device
from fdsim.rng import ClientStreams
from fdsim.trace import Network
from fdsim.trace.availability import Observed

#: Battery levels are noted this often, and at every plug-in, s.
_LEVEL_EVERY_S = 600.0
_ANY = Eligibility(requires_charging=False, requires_unmetered=False)


def fleet_log(group: DeviceGroup, seed: int, *, days: float | Sequence[float]) -> list[Observed]:
    """Let a group's devices live for some days and note what a logger on them would have written.

    With several values of `days` they are taken in turn: device k lives for the k-th of them.
    """
    streams = ClientStreams(seed, group.count)
    spans = [days] if isinstance(days, int | float) else days
    return [
        _log(Device(client, group, _ANY, streams, outages=[]), spans[client % len(spans)])
        for client in range(group.count)
    ]


def _log(device: Device, days: float) -> Observed:
    end_s = days * 86_400.0
    found: dict[str, list[float]] = {"idle": [], "charging": [], "wifi": [], "cellular": []}
    levels: list[tuple[float, float]] = []
    now_s, next_level_s = 0.0, 0.0
    while now_s < end_s:
        network = device.surroundings.link.network
        states = (
            not device.screen_on,
            device.on_charger,
            network is Network.wifi,
            network is Network.cellular,
        )
        for edges, on in zip(found.values(), states, strict=True):
            if on != len(edges) % 2:
                edges.append(now_s)
                if on and edges is found["charging"]:
                    levels.append((now_s, device.soc))
        if now_s >= next_level_s:
            levels.append((now_s, device.soc))
            next_level_s += _LEVEL_EVERY_S
        now_s = min(device.next_s, next_level_s)
        device.advance(now_s)
    intervals = {
        state: np.array([*edges, end_s] if len(edges) % 2 else edges).reshape(-1, 2)
        for state, edges in found.items()
    }
    return Observed(str(device.client), 0.0, end_s, intervals, np.array(levels))


def as_available(log: Observed) -> Observed:
    """The log of a phone of which only its chargers are known, as FedScale's."""
    return Observed(log.name, log.begin_s, log.end_s, {"available": log.during("charging")})
