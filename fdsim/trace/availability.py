"""Availability files: when each device of a measured log was idle, charging, on Wi-Fi, on cellular.

One Parquet row per interval: device, state, start_s, end_s, in seconds since midnight of the device's first
day. Battery readings are rows of the state `level`, each lasting until the next one, with their state of charge
in the column soc, which is NaN for states. The file's metadata hold each device's observed span, over which replays wrap.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fdsim.errors import TraceError
from fdsim.files import SEAL_BLANK, SEAL_KEY, SEAL_MARK, UnfinishedFile, seal, seal_broken, storage_errors
from fdsim.trace.intervals import checked, intersection

#: `available` is for traces that only say whether a device could take part.
STATES = ("idle", "charging", "wifi", "cellular", "available")
#: What a log tells of a device unless it says no more than when it was available; what no row says did not happen.
_TOLD = STATES[:-1]
#: What a battery reading is called in the file, beside the states.
LEVEL = "level"
#: A log that is shorter than this says nothing about a device.
SHORTEST_S = 60.0
SCHEMA = pa.schema(
    [
        ("device", pa.int32()),
        ("state", pa.dictionary(pa.int8(), pa.string())),
        ("start_s", pa.float64()),
        ("end_s", pa.float64()),
        ("soc", pa.float64()),
    ]
)
_NO_LEVELS = np.empty((0, 2))
#: What the metadata of an availability file call it.
AVAILABILITY = "fdsim_availability"
#: Times beyond three centuries are in some other unit than seconds.
MOST_S = 1e10


@dataclass(frozen=True)
class Observed:
    """One device of a measured trace: its span, the intervals [n, 2] of each state, and its battery readings."""

    name: str
    begin_s: float
    end_s: float
    states: Mapping[str, np.ndarray]
    levels: np.ndarray = field(default_factory=lambda: _NO_LEVELS)
    """[n, 2] time, s, and state of charge, 0..1, of each battery reading; a reading holds until the next one."""

    @property
    def span_s(self) -> float:
        """How long the device was observed, s."""
        return self.end_s - self.begin_s

    def during(self, *states: str) -> np.ndarray:
        """Return the intervals in which all of these states held."""
        found = np.array([[self.begin_s, self.end_s]])
        for state in states:
            found = intersection(found, self.states.get(state, np.empty((0, 2))))
        return found

    @property
    def eligible(self) -> np.ndarray:
        """The intervals in which the device could have trained: available, or idle, charging and on Wi-Fi."""
        return (
            self.during("available")
            if "available" in self.states
            else self.during("idle", "charging", "wifi")
        )


def observe(
    name: str,
    span_s: tuple[float, float],
    states: Mapping[str, np.ndarray],
    place: str,
    *,
    levels: np.ndarray = _NO_LEVELS,
) -> Observed:
    """Make a device's record, raising TraceError if it is inconsistent; states that are not given never held."""
    begin_s, end_s = span_s
    if not (abs(begin_s) <= MOST_S and abs(end_s) <= MOST_S):
        raise TraceError(
            place,
            f"the observed span {begin_s:g}–{end_s:g} s is not within {MOST_S:g} s of midnight",
            "give times in seconds",
        )
    if not end_s > begin_s:
        raise TraceError(
            place,
            f"the observed span {begin_s:g}–{end_s:g} s is empty",
            "leave the device out, or mend its span",
        )
    if end_s - begin_s < SHORTEST_S:
        raise TraceError(
            place,
            f"the observed span {begin_s:g}–{end_s:g} s is shorter than {SHORTEST_S:g} s",
            "leave the device out",
        )
    good = {state: checked(found, f"{place}, {state}") for state, found in states.items()}
    for state, found in good.items():
        if len(found) and (found[0, 0] < begin_s - 1e-6 or found[-1, 1] > end_s + 1e-6):
            raise TraceError(
                f"{place}, {state}",
                f"an interval lies outside the span {begin_s:g}–{end_s:g} s",
                "widen the span, or cut the interval",
            )
    if "available" not in good:
        good = {**{state: np.empty((0, 2)) for state in _TOLD}, **good}
    return Observed(name, begin_s, end_s, good, _checked_levels(levels, begin_s, end_s, place))


def _checked_levels(levels: np.ndarray, begin_s: float, end_s: float, place: str) -> np.ndarray:
    found = np.asarray(levels, dtype=np.float64).reshape(-1, 2)
    if not np.isfinite(found).all():
        raise TraceError(
            f"{place}, {LEVEL}", "a battery reading is not a finite number", "leave that reading out"
        )
    if len(found) and (found[:, 1].min() < 0 or found[:, 1].max() > 1):
        raise TraceError(f"{place}, {LEVEL}", "a state of charge is not in [0, 1]", "50 % is 0.5")
    if (np.diff(found[:, 0]) < 0).any():
        raise TraceError(f"{place}, {LEVEL}", "battery readings are not in the order of time", "sort them")
    if len(found) and (found[0, 0] < begin_s - 1e-6 or found[-1, 0] > end_s + 1e-6):
        raise TraceError(
            f"{place}, {LEVEL}",
            f"a reading lies outside the span {begin_s:g}–{end_s:g} s",
            "widen the span, or leave the reading out",
        )
    return found


def write_availability(path: Path | str, devices: list[Observed], source: str) -> None:
    """Write an availability file, which appears under its name only when complete."""
    path = Path(path)
    if not devices:
        raise TraceError(source, "it contains no device")
    names = [device.name for device in devices]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise TraceError(source, f"device '{twice}' occurs twice")
    rows = [
        (index, state, found, np.full(len(found), np.nan))
        for index, device in enumerate(devices)
        for state, found in device.states.items()
    ] + [
        (index, LEVEL, _until_next(device), device.levels[:, 1])
        for index, device in enumerate(devices)
        if len(device.levels)
    ]
    rows.sort(key=lambda row: row[0])
    names_of_states = (*STATES, LEVEL)
    counts = [len(found) for _, _, found, _ in rows]
    times = np.concatenate([found for _, _, found, _ in rows]) if rows else np.empty((0, 2))
    soc = np.concatenate([values for _, _, _, values in rows]) if rows else np.empty(0)
    codes = [names_of_states.index(state) for _, state, _, _ in rows]
    words = pa.DictionaryArray.from_arrays(
        pa.array(np.repeat(codes, counts).astype(np.int8)), pa.array(list(names_of_states))
    )
    about: dict[str | bytes, str | bytes] = {
        SEAL_KEY: SEAL_MARK + SEAL_BLANK,
        "fdsim_kind": AVAILABILITY,
        "fdsim_source": source,
        "fdsim_devices": json.dumps([[d.name, d.begin_s, d.end_s, list(d.states)] for d in devices]),
    }
    table = pa.Table.from_arrays(
        [
            pa.array(np.repeat([index for index, _, _, _ in rows], counts).astype(np.int32)),
            words,
            pa.array(times[:, 0]),
            pa.array(times[:, 1]),
            pa.array(soc),
        ],
        schema=SCHEMA.with_metadata(about),
    )
    with storage_errors(path, resumable=False), UnfinishedFile(path) as waiting:
        pq.write_table(table, waiting, compression="zstd")
        seal(waiting)


def _describes_a_device(about: object) -> bool:
    if not isinstance(about, list) or len(about) != 4:
        return False
    name, begin_s, end_s, states = about
    numbers = all(isinstance(t, int | float) and not isinstance(t, bool) for t in (begin_s, end_s))
    return isinstance(name, str) and numbers and isinstance(states, list) and set(states) <= set(STATES)


def _until_next(device: Observed) -> np.ndarray:
    """[n, 2] from each battery reading to the next one, or to the end of the log."""
    times_s = device.levels[:, 0]
    return np.column_stack([times_s, np.append(times_s[1:], device.end_s)])


def is_availability(path: Path | str) -> bool:
    """Tell whether a Parquet file is an availability file."""
    try:
        metadata = pq.read_schema(path).metadata or {}
    except (pa.ArrowException, OSError):
        return False
    return bool(metadata.get(b"fdsim_kind") == AVAILABILITY.encode())


def read_availability(path: Path | str) -> list[Observed]:
    """Read an availability file."""
    path = Path(path)
    if not path.is_file():
        raise TraceError(
            str(path),
            "there is no such file",
            "`fdsim trace import flash|fedscale|csv FILE --out F.parquet` makes one",
        )
    with storage_errors(path, resumable=False):
        broken = seal_broken(path)
    if broken:
        raise TraceError(
            str(path), "the file is damaged: its bytes are not those that were written", "import it again"
        )
    if not is_availability(path):
        raise TraceError(str(path), "not an availability file", "make one with `fdsim trace import`")
    try:
        # Not pq.read_table, which brings pandas along.
        with pq.ParquetFile(path) as file:
            return _devices(file.read(), path)
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise TraceError(str(path), f"damaged ({error})", "import it again") from None


def _devices(table: pa.Table, path: Path) -> list[Observed]:
    """Return the devices of an availability file; what is not as it must be is a ValueError."""
    if "soc" not in table.column_names:  # Imported by 0.1, which kept no battery readings.
        table = table.append_column("soc", pa.array(np.full(len(table), np.nan)))
    missing = [name for name in SCHEMA.names if name not in table.column_names]
    if missing:
        raise ValueError(f"column '{missing[0]}' is missing")
    about = json.loads((table.schema.metadata or {})[b"fdsim_devices"])
    if not isinstance(about, list) or not all(_describes_a_device(each) for each in about):
        raise ValueError("the list of devices in its metadata is not one")
    table = table.select(SCHEMA.names)
    if table.schema.types != SCHEMA.types:
        table = table.cast(SCHEMA)
    if any(table[name].null_count for name in SCHEMA.names):
        raise ValueError("it has empty cells")
    device = _column(table, "device")
    if (len(device) and (np.diff(device) < 0).any()) or not ((device >= 0) & (device < len(about))).all():
        raise ValueError("the rows are not in the order of its devices")
    state = np.array(table["state"].to_pylist(), dtype=object)
    times = np.column_stack([_column(table, "start_s"), _column(table, "end_s")])
    soc = _column(table, "soc")
    order = np.searchsorted(device, np.arange(len(about) + 1))
    found = []
    for index, (name, begin_s, end_s, states) in enumerate(about):
        mine = slice(order[index], order[index + 1])
        own = {word: times[mine][state[mine] == word] for word in states}
        is_level = state[mine] == LEVEL
        levels = np.column_stack([times[mine][is_level, 0], soc[mine][is_level]])
        found.append(observe(name, (begin_s, end_s), own, f"{path}, device {name}", levels=levels))
    return found


def _column(table: pa.Table, name: str) -> np.ndarray:
    # Not to_numpy, which brings pandas along: a third of the time in which a scenario with a log is validated.
    return np.from_dlpack(table[name].combine_chunks())
