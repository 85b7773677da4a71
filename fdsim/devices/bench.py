"""How fast the fleet is, against SimPy itself: ratios measured in one run, in processor time."""

from __future__ import annotations

import copy
import gc
import resource
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
import simpy

from fdsim.devices.fleet import DeviceGroup
from fdsim.devices.server import Server
from fdsim.devices.world import FleetSetting, World
from fdsim.rng import stream
from fdsim.workload import NetCost, Workload

DAY_S = 86_400.0


@dataclass(frozen=True)
class FleetSpeed:
    """What one fleet of some size took for a simulated day."""

    devices: int
    events: int
    """Rows that an event log would have: changes of state, check-ins, phases begun, outcomes; not loads and levels."""
    build_s: float
    day_s: float
    bare_per_s: float
    """Events per second of a bare SimPy loop with as many processes."""
    peak_mb: float
    """Most memory the process has had so far."""

    @property
    def events_per_s(self) -> float:
        """Events per second of processor time."""
        return self.events / self.day_s

    @property
    def ratio(self) -> float:
        """Our rate of events over that of the bare loop."""
        return self.events_per_s / self.bare_per_s

    @property
    def us_per_device_day(self) -> float:
        """Processor time per device and simulated day, building included, µs."""
        return (self.build_s + self.day_s) / self.devices * 1e6


def scheduled(env: simpy.Environment) -> int:
    """How many events an environment has scheduled so far."""
    return next(copy.copy(env._eid))


def bare_rate(processes: int, events: int = 400_000) -> float:
    """Events per second of processor time of as many SimPy processes that do nothing but wait."""
    env = simpy.Environment()
    waits_s = stream(1, "bench").lognormal(5.0, 1.5, 1024).tolist()

    def wait(index: int) -> Generator[simpy.Event, Any, None]:
        while True:
            index = (index + 1) % 1024
            yield env.timeout(waits_s[index])

    for index in range(processes):
        env.process(wait(index))
    env.run(until=1e-9)
    mean_s = float(np.mean(waits_s))
    before, start = scheduled(env), time.process_time()
    env.run(until=mean_s * max(events, 3 * processes) / processes)
    return (scheduled(env) - before) / (time.process_time() - start)


def small_work(clients: int) -> Workload:
    """A small convolutional net on a few hundred samples: seconds to a minute on a phone."""
    return Workload(NetCost(5e6, 0.0, 60_000), np.full(clients, 320.0), 240_000, 240_000)


def fleet_speed(devices: int, *, rounds: int, selection: dict[str, Any]) -> FleetSpeed:
    """Lets a fleet live for a day with some rounds, and counts what an event log of it would list."""
    bare_per_s = max(bare_rate(devices) for _ in range(2))
    gc.collect()
    group = DeviceGroup.model_validate({"profile": "flash2020", "count": devices})
    server = Server.model_validate({"round_interval_s": DAY_S / max(1, rounds), "selection": selection})
    start = time.process_time()
    world = World(FleetSetting((group,), server, small_work(devices), rounds, 1))
    built = time.process_time()
    asked = 0
    for round_index in range(rounds):
        made = world.env.run(until=world.env.process(world.serve(round_index)))
        # Each client asked checks in and ends somehow; the code of its last phase counts the phases it began.
        asked += 2 * len(made.selected) + int(made.phase[made.selected].sum())  # type: ignore[union-attr]
    for participant in world.participants:
        participant.device.advance(DAY_S)
    lived = time.process_time()
    events = sum(participant.device.changes for participant in world.participants) + asked
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return FleetSpeed(devices, events, built - start, lived - built, bare_per_s, peak_mb)


#: name → rounds a day and whom they ask.
DAYS: dict[str, tuple[int, dict[str, Any]]] = {
    "living only": (0, {"kind": "all"}),
    "100 clients every half hour": (48, {"kind": "random", "clients_per_round": 100}),
    "everybody every half hour": (48, {"kind": "all"}),
}


def show_fleet_speed(sizes: tuple[int, ...]) -> None:
    """Prints the fleet's speed against bare SimPy, and how the time per device grows with the fleet."""
    for name, (rounds, selection) in DAYS.items():
        first: FleetSpeed | None = None
        for devices in sizes:
            found = fleet_speed(devices, rounds=rounds, selection=selection)
            first = first or found
            growth = found.us_per_device_day / first.us_per_device_day
            print(
                f"{name:28s} {devices:7d} devices  {found.events_per_s:9.0f} events/s, {found.ratio:5.2f} of bare SimPy"
                f"  {found.us_per_device_day:7.0f} µs per device-day ({growth:4.2f}×)  {found.peak_mb:6.0f} MB",
                flush=True,
            )
