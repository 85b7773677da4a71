"""Replay models: measured intervals drive link, screen and charger; battery and compute stay simulated."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field, NonNegativeInt, field_validator

from fdsim.devices.models.battery import WH_J, Battery, Flow
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

if TYPE_CHECKING:
    from fdsim.trace.availability import Observed

Assignment = Literal["random", "in_order"]


@lru_cache(maxsize=8)
def _read(path: str, _changed_ns: int) -> tuple[Observed, ...]:
    from fdsim.trace.availability import read_availability

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

    path: str = Field(
        description="an availability file, as `fdsim trace import` makes them, seen from the folder in which fdsim is called"
    )
    assignment: Assignment = Field(default="random", description="which device replays which row")
    row: NonNegativeInt | None = Field(default=None, description="replay this row on every device instead")
    wifi: Bandwidth = Field(WIFI, description="rates on Wi-Fi")
    cellular: Bandwidth = Field(CELLULAR, description="rates on cellular")

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


def repeated_logs(path: str, used: Collection[int], until_s: float) -> str:
    """Return a sentence about the rows of a file, of those in use, that end before a time; empty if none does."""
    short = sum(_row(path, row).end_s < until_s for row in used)
    if not short:
        return ""
    return (
        f"{path}: {short} of {len(used)} replayed logs are shorter than the run, which ends "
        f"{until_s / 86_400:.1f} days after midnight of its first day, and are repeated"
    )


def rows_used(part: ReplayLink | ReplayUsage | ReplayBattery, clients: range, seed: int) -> set[int]:
    """Return which rows of its file the devices of a group replay."""
    if part.row is not None:
        return {part.row}
    rows = len(rows_of(part.path))
    # Every row is used once before any is used twice.
    return {row_for(client, seed, rows, part.assignment) for client in clients[:rows]}


class LoggedCharge:
    """The battery readings of one row, going round its span; a reading holds until the next one."""

    #: Sums of times are rounded: a reading this little ahead has been taken.
    AHEAD_S = 1e-6

    def __init__(self, seen: Observed) -> None:
        self._begin_s, self._span_s = seen.begin_s, seen.span_s
        times_s, soc = seen.levels.T
        # From the start of the log on, the first reading holds.
        self._times_s = np.concatenate([[0.0], times_s[1:] - seen.begin_s])
        self._soc = soc

    def _place(self, t_s: float) -> tuple[int, int]:
        """Return how often the log has gone round at a time, and which reading holds."""
        rounds, at_s = divmod(t_s + self.AHEAD_S - self._begin_s, self._span_s)
        return int(rounds), int(np.searchsorted(self._times_s, at_s, side="right")) - 1

    def soc_at(self, t_s: float) -> float:
        """Return the reading that holds at a time."""
        return float(self._soc[self._place(t_s)[1]]) if t_s < math.inf else float(self._soc[-1])

    def next_crossing(self, t_s: float, soc: float) -> float:
        """Return the time of the next reading on the other side of a level; inf if there is none."""
        rounds, index = self._place(t_s)
        other_side = (self._soc < soc) != (self._soc[index] < soc)
        ahead = np.flatnonzero(other_side)
        if not len(ahead):
            return math.inf
        later = ahead[ahead > index]
        if not len(later):
            rounds += 1
        return float(
            self._begin_s + rounds * self._span_s + self._times_s[later[0] if len(later) else ahead[0]]
        )


@lru_cache(maxsize=4096)
def _logged_charge(path: str, row: int, _changed_ns: int) -> LoggedCharge:
    seen = _row(path, row)
    if not len(seen.levels):
        raise TraceError(
            path, f"device {seen.name} has no battery readings", 'simulate its battery: kind = "tapered"'
        )
    return LoggedCharge(seen)


class ReplayBattery(Battery):
    """Replays a measured log's battery readings; what a device works at costs energy but moves no level."""

    path: str = Field(
        description="an availability file with battery readings, as `fdsim trace import` makes them, seen from the folder in "
        "which fdsim is called"
    )
    assignment: Assignment = Field(default="random", description="which device replays which row")
    row: NonNegativeInt | None = Field(default=None, description="replay this row on every device instead")
    capacity_wh: float = Field(default=15.4, gt=0, le=200, description="energy of the full battery, Wh")

    _exists = field_validator("path")(_checked_path)

    def readings(self, client: int, seed: int) -> LoggedCharge:
        """Return the readings of the device's row."""
        rows = len(rows_of(self.path))
        row = row_for(client, seed, rows, self.assignment) if self.row is None else self.row
        return _logged_charge(self.path, row, Path(self.path).stat().st_mtime_ns)

    def full_j(self, throughput_j: float) -> float:
        """Return the capacity, which does not age here."""
        return self.capacity_wh * WH_J

    def after(self, charge_j: float, time_s: float, flow: Flow) -> float:
        """Return the charge as it is: only readings move it."""
        return charge_j

    def time_to_level(self, charge_j: float, level_j: float, flow: Flow) -> float:
        """Return inf: only readings move the charge."""
        return 0.0 if charge_j == level_j else math.inf


class ReplayUsage(Usage):
    """Replays a measured trace's screen and charger (or its availability, as idle and charging)."""

    path: str = Field(
        description="an availability file, as `fdsim trace import` makes them, seen from the folder in which fdsim is called"
    )
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
