"""Import availability from a CSV: one row per interval, with a header.

Columns: device, state, start_s, end_s, and soc if battery readings are given. `state` is idle, charging, wifi,
cellular or available, or `level` for a reading with its state of charge, 0..1, in soc; times are seconds since
midnight of the device's first day. The span observed is from 0 to the end of the last day
with an interval, or as given by a row whose state is `observed`. Rows of a device's state must not overlap
and must be in the order of time; intervals that touch are joined.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np

from fdsim.errors import TraceError
from fdsim.trace.availability import LEVEL, STATES, Observed, observe
from fdsim.trace.intervals import checked, joined

COLUMNS = ("device", "state", "start_s", "end_s")


def read_interval_csv(path: Path | str) -> list[Observed]:
    """Read a CSV of intervals."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    levels: dict[str, list[tuple[float, float]]] = {}
    try:
        with open(path, newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            if tuple(reader.fieldnames or ()) not in (COLUMNS, (*COLUMNS, "soc")):
                raise TraceError(
                    str(path), f"the header is {reader.fieldnames}", f"expected: {','.join(COLUMNS)}[,soc]"
                )
            for row in reader:
                place = f"{path}, line {reader.line_num}"
                device, state, interval = _row(row, place)
                states = found.setdefault(device, {})
                if state == LEVEL:
                    levels.setdefault(device, []).append((interval[0], _soc(row, place)))
                else:
                    states.setdefault(state, []).append(interval)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TraceError(str(path), f"not readable as CSV ({error})") from None
    if not found:
        raise TraceError(str(path), "it contains no intervals")
    return [
        _device(name, states, levels.get(name, []), f"{path}, device {name}")
        for name, states in found.items()
    ]


def _row(row: dict[str, str], place: str) -> tuple[str, str, tuple[float, float]]:
    state = row["state"]
    known = (*STATES, "observed", *((LEVEL,) if "soc" in row else ()))
    if state not in known:
        raise TraceError(place, f"unknown state '{state}'", f"one of: {', '.join(known)}")
    try:
        start_s, end_s = float(row["start_s"]), float(row["end_s"])
    except (TypeError, ValueError):
        raise TraceError(
            place, f"'{row['start_s']}' to '{row['end_s']}' is not an interval in seconds"
        ) from None
    if not (math.isfinite(start_s) and math.isfinite(end_s)) or start_s < 0:
        raise TraceError(place, f"{start_s} to {end_s} is not an interval in seconds since midnight of day 0")
    return row["device"], state, (start_s, end_s)


def _soc(row: dict[str, str], place: str) -> float:
    try:
        return float(row["soc"])
    except (TypeError, ValueError):
        raise TraceError(place, f"'{row['soc']}' is not a state of charge", "expected 0 to 1") from None


def _device(
    name: str,
    states: dict[str, list[tuple[float, float]]],
    levels: list[tuple[float, float]],
    place: str,
) -> Observed:
    observed = states.pop("observed", None)
    if observed is not None:
        if len(observed) > 1:
            raise TraceError(place, "has more than one 'observed' row")
        span_s = observed[0]
    else:
        ends = [end_s for intervals in states.values() for _, end_s in intervals] + [t_s for t_s, _ in levels]
        span_s = (0.0, max(1.0, math.ceil(max(ends) / 86_400.0)) * 86_400.0)
    good = {state: joined(checked(np.array(i), f"{place}, {state}")) for state, i in states.items()}
    return observe(name, span_s, good, place, levels=np.array(levels).reshape(-1, 2))
