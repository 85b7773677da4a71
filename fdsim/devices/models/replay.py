"""Replay models: measured intervals drive link, screen and charger; battery and compute stay simulated."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, NonNegativeInt, field_validator

from fdsim.devices.models.connectivity import (
    CELLULAR,
    WIFI,
    Bandwidth,
    Connectivity,
    Sessions,
    Spell,
    offline,
)
from fdsim.devices.models.habits import Phone
from fdsim.devices.models.spells import Switch, normals
from fdsim.devices.models.usage import Usage
from fdsim.errors import InputError, TraceError
from fdsim.rng import stream
from fdsim.trace import Network
from fdsim.trace.availability import Observed, read_availability

Assignment = Literal["random", "in_order"]


@lru_cache(maxsize=8)
def _read(path: str, _changed_ns: int) -> tuple[Observed, ...]:
    return tuple(read_availability(path))


def rows_of(path: str) -> tuple[Observed, ...]:
    """Return the devices of an availability file, read once."""
    found = Path(path)
    return _read(path, found.stat().st_mtime_ns if found.is_file() else 0)


@lru_cache(maxsize=8)
def _order(rows: int, seed: int) -> np.ndarray:
    return stream(seed, "replay").permutation(rows)


def row_for(client: int, seed: int, rows: int, assignment: Assignment) -> int:
    """Return which row of the file a device replays: in a random order, since files are often sorted by availability.

    Every row is used once before any is used twice, and link and usage models of the same file agree.
    """
    return int(_order(rows, seed)[client % rows]) if assignment == "random" else client % rows


def wrapped(intervals: np.ndarray, begin_s: float, end_s: float) -> Iterator[Switch]:
    """Yield on and off spells from midnight of day 0 for ever, going round the observed span [begin, end).

    Before the observation began, the time is that of the last round: second t is second begin + (t − begin)
    mod span.
    """
    span_s = end_s - begin_s
    edges = [begin_s, *intervals.ravel().tolist(), end_s]
    # Spell i of a round is on when i is odd: off before the first interval, on during it, and so on.
    spells = [(i % 2 == 1, a, b) for i, (a, b) in enumerate(pairwise(edges)) if b > a]
    at_s = begin_s + (0.0 - begin_s) % span_s
    index = next(i for i, (_, _, b) in enumerate(spells) if at_s < b)
    while True:
        on, start_s, stop_s = spells[index]
        if stop_s > max(start_s, at_s):
            yield Switch(on, stop_s - max(start_s, at_s))
        index, at_s = (index + 1) % len(spells), begin_s


def _checked_path(path: str) -> str:
    try:
        rows_of(path)
    except InputError as error:
        raise ValueError(str(error)) from None
    return path


def _row(path: str, row: int | None) -> Observed:
    rows = rows_of(path)
    if row is None or row >= len(rows):
        raise TraceError(
            path, f"there is no row {row}; it has {len(rows)} devices", "rows are counted from 0"
        )
    return rows[row]


class ReplayLink(Connectivity):
    """Replays a measured trace's Wi-Fi and cellular intervals (or its plain availability, taken as Wi-Fi)."""

    path: str = Field(description="an availability file, as `fdsim trace import` makes them")
    assignment: Assignment = Field(default="random", description="which device replays which row")
    row: NonNegativeInt | None = Field(default=None, description="replay this row on every device instead")
    wifi: Bandwidth = WIFI
    cellular: Bandwidth = CELLULAR

    _exists = field_validator("path")(_checked_path)

    def for_device(self, client: int, seed: int) -> ReplayLink:
        """Return this model, bound to the device's row."""
        if self.row is not None:
            return self
        return self.model_copy(
            update={"row": row_for(client, seed, len(rows_of(self.path)), self.assignment)}
        )

    def spells(self, rng: np.random.Generator) -> Iterator[Spell]:
        """Yield Wi-Fi where the trace has it, else cellular, else nothing."""
        seen = _row(self.path, self.row)
        sessions = {
            Network.wifi: Sessions(self.wifi, Network.wifi, rng),
            Network.cellular: Sessions(self.cellular, Network.cellular, rng),
        }
        luck = normals(rng)
        for network, length_s in _networks(seen):
            yield (
                offline(length_s)
                if network is Network.none
                else sessions[network].spell(length_s, next(luck))
            )


def _networks(seen: Observed) -> Iterator[tuple[Network, float]]:
    wifi = wrapped(
        seen.during("available" if "available" in seen.states else "wifi"), seen.begin_s, seen.end_s
    )
    cellular = wrapped(seen.during("cellular"), seen.begin_s, seen.end_s)
    (on_wifi, wifi_s), (on_cellular, cellular_s) = next(wifi), next(cellular)
    while True:
        length_s = min(wifi_s, cellular_s)
        if length_s > 0.0:
            yield (Network.wifi if on_wifi else Network.cellular if on_cellular else Network.none), length_s
        wifi_s, cellular_s = wifi_s - length_s, cellular_s - length_s
        if wifi_s <= 0.0:
            on_wifi, wifi_s = next(wifi)
        if cellular_s <= 0.0:
            on_cellular, cellular_s = next(cellular)


class ReplayUsage(Usage):
    """Replays a measured trace's screen and charger (or its availability, as idle and charging)."""

    path: str = Field(description="an availability file, as `fdsim trace import` makes them")
    assignment: Assignment = Field(default="random", description="which device replays which row")
    row: NonNegativeInt | None = Field(default=None, description="replay this row on every device instead")

    _exists = field_validator("path")(_checked_path)

    def for_device(self, client: int, seed: int) -> ReplayUsage:
        """Return this model, bound to the device's row."""
        if self.row is not None:
            return self
        return self.model_copy(
            update={"row": row_for(client, seed, len(rows_of(self.path)), self.assignment)}
        )

    def screen(self, rng: np.random.Generator, phone: Phone) -> Iterator[Switch]:
        """Yield on whenever the trace does not say that the device was idle."""
        seen = _row(self.path, self.row)
        idle = seen.during("available" if "available" in seen.states else "idle")
        for is_idle, length_s in wrapped(idle, seen.begin_s, seen.end_s):
            yield Switch(not is_idle, length_s)

    def charger(self, rng: np.random.Generator, phone: Phone) -> Iterator[Switch]:
        """Yield in whenever the trace says that the device was charging."""
        seen = _row(self.path, self.row)
        charging = seen.during("available" if "available" in seen.states else "charging")
        return wrapped(charging, seen.begin_s, seen.end_s)
