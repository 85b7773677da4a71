"""How fast the fleet is, against SimPy itself: ratios measured in one run, in processor time."""

from __future__ import annotations

import copy
import gc
import resource
import tempfile
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import simpy

from fdsim.devices.config.fleet import DeviceGroup
from fdsim.devices.config.server import Server
from fdsim.devices.config.simulation import SimulationConfig
from fdsim.devices.engine import gc_pause
from fdsim.devices.engine.world import World
from fdsim.distributed.fleet import FleetSpread, Told, simulate_spread
from fdsim.rng import stream
from fdsim.trace import write_trace
from fdsim.workload import NetCost, Workload

DAY_S = 86_400.0


@dataclass(frozen=True)
class FleetSpeed:
    """What one fleet of some size took for a simulated day."""

    devices: int
    events: int
    """Rows that an event log would have: changes of state, check-ins, phases begun, outcomes.

    A change of state is a link, a screen, a charger, an outage or a crash that comes or goes, or a charge level that
    is met. The load and the charge that the log adds to every change are not counted, though each is worked out.
    """
    build_s: float
    day_s: float
    bare_per_s: float
    """Events per second of a bare SimPy loop with as many processes."""
    peak_mb: float
    """Peak memory of the process so far."""

    @property
    def events_per_s(self) -> float:
        """Events per second of processor time."""
        return self.events / self.day_s

    @property
    def ratio(self) -> float:
        """The fleet's rate of events over that of the bare loop."""
        return self.events_per_s / self.bare_per_s

    @property
    def us_per_device_day(self) -> float:
        """Processor time per device and simulated day, building included, µs."""
        return (self.build_s + self.day_s) / self.devices * 1e6


def scheduled(env: simpy.Environment) -> int:
    """Return how many events an environment has scheduled so far."""
    return next(copy.copy(env._eid))


def bare_rate(processes: int, events: int = 400_000) -> float:
    """Return the events per second of processor time of as many SimPy processes that do nothing but wait."""
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
    """Return the work of a small convolutional net on a few hundred samples: seconds to a minute on a phone."""
    return Workload(NetCost(5e6, 0.0, 60_000), np.full(clients, 320.0), 240_000, 240_000)


def fleet_speed(devices: int, *, rounds: int, selection: dict[str, Any], repeats: int = 1) -> FleetSpeed:
    """Let a fleet live for a day with some rounds, and count what an event log of it would list.

    Other processes disturb the measurement, so bare loop and fleet take turns, and the best time of each counts.
    """
    bare_per_s, found = 0.0, []
    for _ in range(repeats):
        bare_per_s = max(bare_per_s, bare_rate(devices), bare_rate(devices))
        gc.collect()
        found.append(_one_day(devices, rounds, selection))
    events, build_s, day_s = found[0][0], min(f[1] for f in found), min(f[2] for f in found)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return FleetSpeed(devices, events, build_s, day_s, bare_per_s, peak_mb)


def _day(devices: int, rounds: int, selection: dict[str, Any]) -> SimulationConfig:
    group = DeviceGroup.model_validate({"profile": "flash2020", "count": devices})
    server = Server.model_validate({"round_interval_s": DAY_S / max(1, rounds), "selection": selection})
    return SimulationConfig((group,), server, small_work(devices), rounds, 1)


def _one_day(devices: int, rounds: int, selection: dict[str, Any]) -> tuple[int, float, float]:
    """Return (events, time to build the fleet, time of its day)."""
    config = _day(devices, rounds, selection)
    start = time.process_time()
    world = World(config)
    built = time.process_time()
    events = 0
    with gc_pause.frozen():
        for made in world.rounds():
            # Each selected client checks in and has an outcome; the code of its last phase counts the phases it began.
            events += 2 * len(made.selected) + int(made.phase[made.selected].sum())
        world.live_until(DAY_S)
        lived = time.process_time()
    events += sum(device.changes for device in world.devices)
    return events, built - start, lived - built


@dataclass(frozen=True)
class TraceSpeed:
    """What the trace of a fleet took, simulated and written, over some processes."""

    devices: int
    workers: int
    wall_s: float
    peak_mb: float
    """Peak memory of the largest process so far; each of the others has as much at most."""
    content_hash: str

    @property
    def us_per_device_day(self) -> float:
        """Wall time per device and simulated day, µs."""
        return self.wall_s / self.devices * 1e6


def trace_speed(devices: int, workers: int) -> TraceSpeed:
    """Make the trace of a day on which everybody is asked every half hour, over some processes."""
    rounds, selection = DAYS["everybody every half hour"]
    config, told = _day(devices, rounds, selection), Told(_nothing, _nothing, _nothing)
    with tempfile.TemporaryDirectory(prefix="fdsim-bench-") as folder:
        path = Path(folder) / "trace.parquet"
        began_s = time.perf_counter()
        trace = write_trace(path, simulate_spread(config, FleetSpread(workers), beside=path, told=told))
        wall_s = time.perf_counter() - began_s
        found = trace.content_hash
    peak_kb = max(
        resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return TraceSpeed(devices, workers, wall_s, peak_kb / 1024, found)


def _nothing(*about: object) -> None:
    """Tell nobody."""


def show_trace_speed(sizes: tuple[int, ...], workers: tuple[int, ...]) -> None:
    """Print what traces take over some processes, and how much sooner more of them are done."""
    for devices in sizes:
        first: TraceSpeed | None = None
        for count in workers:
            found = trace_speed(devices, count)
            first = first or found
            same = "the same trace" if found.content_hash == first.content_hash else "ANOTHER TRACE"
            print(
                f"trace, everybody every half hour {devices:8d} devices  {count} workers {found.wall_s:7.1f} s, "
                f"{first.wall_s / found.wall_s:4.2f}×, {same}  {found.us_per_device_day:5.0f} µs per device-day"
                f"  {found.peak_mb:6.0f} MB a process",
                flush=True,
            )


#: name → rounds a day and their selection.
DAYS: dict[str, tuple[int, dict[str, Any]]] = {
    "living only": (0, {"kind": "all"}),
    "100 clients every half hour": (48, {"kind": "random", "clients_per_round": 100}),
    "everybody every half hour": (48, {"kind": "all"}),
}


def show_fleet_speed(sizes: tuple[int, ...]) -> None:
    """Print the fleet's speed against bare SimPy, and how the time per device grows with the fleet."""
    for name, (rounds, selection) in DAYS.items():
        first: FleetSpeed | None = None
        for devices in sizes:
            found = fleet_speed(
                devices, rounds=rounds, selection=selection, repeats=max(1, min(5, 20_000 // devices))
            )
            first = first or found
            growth = found.us_per_device_day / first.us_per_device_day
            print(
                f"{name:28s} {devices:7d} devices  {found.events_per_s:9.0f} events/s, {found.ratio:5.2f} of bare SimPy"
                f"  {found.us_per_device_day:7.0f} µs per device-day ({growth:4.2f}×)  {found.peak_mb:6.0f} MB",
                flush=True,
            )
