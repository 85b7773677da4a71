"""Import FedScale availability: its pickles and its JSON event form.

Pickle: {id: {"active": [s…], "inactive": [s…], "finish_time": span, …}}, where active[i]..inactive[i] are
intervals. JSON: {id: {"avl_events_2_state": [[t_s, "AVL_TRAIN" | "UN_AVL"], …], …}}; its first 300 s are
artificially available for every device and are left out. Intervals at most a second apart,
the resolution of the clock, are one session and are joined.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from fdsim.errors import TraceError
from fdsim.trace.availability import MOST_S, Observed, observe
from fdsim.trace.importers.safe_pickle import load_plain_pickle
from fdsim.trace.intervals import checked, joined

#: The start of the JSON form in which every device is made available, whatever it was.
WARM_UP_S = 300.0
#: Sessions with no longer a pause than this are one.
TOUCHING_S = 1.0
_LEAVE_OUT = "leave the device out, or mend its times"
_FROM_START = "count its times from the start of its log"
_STATES = {"AVL_TRAIN": True, "AVL_EVAL": False, "UN_AVL": False}


def read_fedscale(path: Path | str) -> list[Observed]:
    """Read a FedScale availability file: JSON if its suffix is .json, otherwise a pickle."""
    path = Path(path)
    if path.suffix == ".json":
        try:
            devices = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, OSError, RecursionError) as error:
            raise TraceError(str(path), f"not readable as JSON ({error})") from None
        read = _from_events
    else:
        devices = load_plain_pickle(path)
        read = _from_intervals
    if not isinstance(devices, dict) or not devices:
        raise TraceError(str(path), "not a table of devices", "expected {id: {…}, …}")
    return [read(str(name), entry, f"{path}, device {name}") for name, entry in devices.items()]


def _numbers(entry: Any, key: str, place: str) -> np.ndarray:
    if not isinstance(entry, dict) or key not in entry:
        raise TraceError(place, f"has no '{key}'")
    try:
        found = np.asarray(entry[key], dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise TraceError(place, f"'{key}' is not a list of numbers") from None
    if not np.isfinite(found).all():
        raise TraceError(place, f"'{key}' has a number that is not finite", _LEAVE_OUT)
    if (found < 0).any():
        raise TraceError(place, f"'{key}' has a negative time, {found.min():g} s", _FROM_START)
    return found


def _from_intervals(name: str, entry: Any, place: str) -> Observed:
    active, inactive = _numbers(entry, "active", place), _numbers(entry, "inactive", place)
    span = _numbers(entry, "finish_time", place)
    if span.ndim:
        raise TraceError(place, "'finish_time' is not a number")
    span_s = float(span)
    if active.ndim != 1 or active.shape != inactive.shape:
        raise TraceError(place, f"{active.size} starts do not match {inactive.size} ends")
    # Logs may run on past the span; the last interval is cut there.
    ends = np.minimum(inactive, span_s)
    intervals = np.column_stack([active, ends])[active < span_s]
    available = joined(checked(intervals, f"{place}, available"), gap_s=TOUCHING_S)
    return observe(name, (0.0, span_s), {"available": available}, place)


def _from_events(name: str, entry: Any, place: str) -> Observed:
    events = entry.get("avl_events_2_state") if isinstance(entry, dict) else None
    if not isinstance(events, list) or not events:
        raise TraceError(place, "has no 'avl_events_2_state' list")
    intervals: list[tuple[float, float]] = []
    since_s: float | None = None
    last_s = 0.0
    for number, event in enumerate(events):
        if not (isinstance(event, list) and len(event) == 2 and isinstance(event[0], int | float)):
            raise TraceError(place, f"event {number} is not [time, state]")
        if not abs(event[0]) <= MOST_S:  # NaN, infinity, or a whole number that no float holds.
            raise TraceError(place, f"event {number}: {event[0]} is not a time in seconds", _LEAVE_OUT)
        t_s, state = float(event[0]), event[1]
        if t_s < 0:
            raise TraceError(place, f"event {number}: a negative time, {t_s:g} s", _FROM_START)
        if state not in _STATES:
            raise TraceError(
                place, f"event {number}: unknown state '{state}'", f"one of: {', '.join(_STATES)}"
            )
        if t_s < last_s:
            raise TraceError(
                place, f"time runs back at event {number}: {t_s:g} s after {last_s:g} s", "sort its events"
            )
        last_s, t_s = t_s, max(t_s, WARM_UP_S)
        if _STATES[state]:
            since_s = t_s if since_s is None else since_s
        elif since_s is not None:
            intervals.append((since_s, t_s))
            since_s = None
    end_s = max(last_s, WARM_UP_S) if since_s is None else max(last_s, since_s)
    days = max(1.0, np.ceil(end_s / 86_400.0))
    if since_s is not None:
        intervals.append((since_s, days * 86_400.0))
    found = joined(np.array([i for i in intervals if i[1] > i[0]]).reshape(-1, 2), gap_s=TOUCHING_S)
    return observe(name, (WARM_UP_S, days * 86_400.0), {"available": found}, place)
