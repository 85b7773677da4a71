"""The fleet's speed against SimPy itself; run alone on a quiet machine: pytest -m benchmark -n0 -s."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from fdsim.bench.fleet import DAYS, TraceSpeed, fleet_speed, trace_speed
from fdsim.distributed.cluster import usable_cores, worker_environment

PROGRAM = """
import dataclasses, json, sys
from fdsim.bench.fleet import trace_speed
print(json.dumps(dataclasses.asdict(trace_speed(int(sys.argv[1]), int(sys.argv[2])))))
"""


def trace_speed_alone(devices: int, workers: int) -> TraceSpeed:
    """Measure in a process of its own, whose peak memory is not that of earlier tests.

    A process inherits the peak of the one that started it, as the system counts; so a shell, which is small, does it.
    """
    through = ["sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", PROGRAM, str(devices), str(workers)]
    environment = worker_environment(threads=usable_cores())
    done = subprocess.run(through, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return TraceSpeed(**json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.benchmark
@pytest.mark.parametrize("day", DAYS)
@pytest.mark.parametrize(("devices", "repeats"), [(1_000, 8), (20_000, 2)])
def test_events_per_second_are_half_of_a_bare_loop(devices: int, repeats: int, day: str) -> None:
    rounds, selection = DAYS[day]
    found = fleet_speed(devices, rounds=rounds, selection=selection, repeats=repeats)
    print(
        f"{day}, {devices} devices: {found.ratio:.2f} of bare SimPy, {found.us_per_device_day:.0f} µs per device-day"
    )
    assert found.ratio >= 0.5


@pytest.mark.slow
@pytest.mark.benchmark
@pytest.mark.parametrize("day", DAYS)
def test_a_hundred_thousand_phones_for_a_day(day: str) -> None:
    """Within 2.5 GB, and no more than half again the time per device of a thousand."""
    rounds, selection = DAYS[day]
    small = fleet_speed(1_000, rounds=rounds, selection=selection, repeats=5)
    large = fleet_speed(100_000, rounds=rounds, selection=selection)
    growth = large.us_per_device_day / small.us_per_device_day
    print(f"{day}: {growth:.2f}× the time per device-day, {large.peak_mb:.0f} MB")
    assert large.peak_mb < 2_500
    assert growth <= 1.5


@pytest.mark.slow
@pytest.mark.benchmark
@pytest.mark.skipif(usable_cores() < 2, reason="there is one core")
def test_two_processes_make_a_trace_nearly_twice_as_fast() -> None:
    """Of 100 000 phones, byte for byte the same trace."""
    one, two = trace_speed_alone(100_000, 1), trace_speed_alone(100_000, 2)
    print(f"{one.wall_s:.1f} s in one process, {two.wall_s:.1f} s in two: {one.wall_s / two.wall_s:.2f}×")
    assert two.content_hash == one.content_hash
    assert two.peak_mb < 1_000
    assert one.wall_s / two.wall_s >= 1.8


@pytest.mark.slow
@pytest.mark.benchmark
def test_a_million_phones_for_a_day() -> None:
    """Within 6 GB, and no more than 1.3 times the time per phone of a hundred thousand."""
    small = trace_speed_alone(100_000, usable_cores())
    large = trace_speed_alone(1_000_000, usable_cores())
    growth = large.us_per_device_day / small.us_per_device_day
    print(f"{large.wall_s:.0f} s, {growth:.2f}× the time per phone, {large.peak_mb:.0f} MB a process")
    assert large.peak_mb * (usable_cores() + 1) < 6_000
    assert growth <= 1.3


def test_the_benchmark_itself_works() -> None:
    found = fleet_speed(20, rounds=2, selection={"kind": "all"})
    assert found.events > 20
    assert found.ratio > 0


def test_the_benchmark_of_traces_itself_works() -> None:
    found = trace_speed(20, 1)
    assert found.wall_s > 0
    assert found.peak_mb > 10


def test_peak_memory_is_that_of_the_benchmark_alone() -> None:
    fill = bytearray(b"x") * 2**29
    found = trace_speed_alone(20, 2)
    assert 10 < found.peak_mb < 400
    assert found.content_hash == trace_speed(20, 1).content_hash
    del fill
