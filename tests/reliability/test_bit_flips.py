"""A single flipped bit is noticed, or changes nothing: never is a file silently read as other data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fdsim.errors import FdsimError
from fdsim.rng import stream
from fdsim.trace import open_trace, plain_round, write_trace
from fdsim.trace.availability import Observed, observe, read_availability, write_availability

SEED = 15


def _trace(path: Path) -> Callable[[], Any]:
    rng = stream(SEED, "flipped trace")
    write_trace(path, (plain_round(r, rng.random(40) < 0.7, 60.0) for r in range(12)), rows_per_group=100)

    def read() -> Any:
        trace = open_trace(path)
        whole = [{f.name: np.asarray(getattr(r, f.name)).tolist() for f in fields(r)} for r in trace]
        return trace.clients, trace.rounds, trace.made_by, repr(whole)

    return read


def _availability(path: Path) -> Callable[[], Any]:
    rng = stream(SEED, "flipped availability")

    def device(index: int) -> Observed:
        times = np.sort(rng.uniform(0, 86_400 * 3, 40)).reshape(-1, 2)
        return observe(f"d{index}", (0.0, 86_400.0 * 3), {"wifi": times, "idle": times + 0.5}, "test")

    write_availability(path, [device(index) for index in range(12)], "test")

    def read() -> Any:
        devices = read_availability(path)
        return repr(
            [(d.name, d.begin_s, d.end_s, {s: t.tolist() for s, t in d.states.items()}) for d in devices]
        )

    return read


def _flip(make: Callable[[Path], Callable[[], Any]], path: Path, flips: int) -> Counter[str]:
    read = make(path)
    whole, expected, found = path.read_bytes(), read(), Counter[str]()
    rng = stream(SEED, "bits", path.name)
    for bit in rng.choice(len(whole) * 8, size=min(flips, len(whole) * 8), replace=False):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(damaged)
        try:
            found["same" if read() == expected else f"other data, bit {bit}"] += 1
        except FdsimError:
            found["refused"] += 1
    return found


@pytest.mark.parametrize("make", [_trace, _availability])
def test_a_few_flipped_bits_are_noticed(make: Callable[[Path], Callable[[], Any]], tmp_path: Path) -> None:
    found = _flip(make, tmp_path / f"{make.__name__}.parquet", 80)
    assert set(found) <= {"refused", "same"}, found
    assert found["refused"] > 70


@pytest.mark.reliability
@pytest.mark.parametrize("make", [_trace, _availability])
def test_flipped_bits_are_noticed(make: Callable[[Path], Callable[[], Any]], tmp_path: Path) -> None:
    found = _flip(make, tmp_path / f"{make.__name__}.parquet", 2_000)
    print(f"\nbit flips, {make.__name__[1:]}, seed {SEED}: {found.total()}: {dict(found)}")
    assert set(found) <= {"refused", "same"}
    assert found.total() == 2_000
