"""Import availability from a CSV: one row per interval, with a header.

Columns: device, state, start_s, end_s, and soc if battery readings are given. `state` is idle, charging, wifi,
cellular or available, or `level` for a reading with its state of charge, 0..1, in soc; times are seconds since
midnight of the device's first day. The span observed is from 0 to the end of the last day with an interval, or as
given by a row whose state is `observed`. Rows may come in any order; those of a device's state must not overlap, and
intervals that touch are joined.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fdsim.errors import TraceError
from fdsim.trace.availability import LEVEL, STATES, Observed, observe
from fdsim.trace.intervals import checked, joined

COLUMNS = ("device", "state", "start_s", "end_s")


#: No log begins this long after midnight of its first day, s: such times are counted from elsewhere, 1970 perhaps.
_LATEST_START_S = 10 * 365 * 86_400.0


class _Row(NamedTuple):
    """One line of the file."""

    start_s: float
    end_s: float
    line: int
    soc: float = math.nan


def read_interval_csv(path: Path | str) -> list[Observed]:
    """Read a CSV of intervals."""
    found: dict[str, dict[str, list[_Row]]] = {}
    try:
        with open(path, newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            if tuple(reader.fieldnames or ()) not in (COLUMNS, (*COLUMNS, "soc")):
                raise TraceError(
                    str(path), f"the header is {reader.fieldnames}", f"expected: {','.join(COLUMNS)}[,soc]"
                )
            for fields in reader:
                row = _row(fields, f"{path}, line {reader.line_num}", reader.line_num)
                found.setdefault(fields["device"], {}).setdefault(fields["state"], []).append(row)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TraceError(str(path), f"not readable as CSV ({error})") from None
    if not found:
        raise TraceError(str(path), "it contains no intervals")
    # Where others only say when they were available, a device without any such row never was.
    if any("available" in states for states in found.values()):
        for states in found.values():
            if states.keys() <= {"observed", LEVEL}:
                states["available"] = []
    return [_device(name, states, path) for name, states in found.items()]


def _row(fields: dict[str, str], place: str, line: int) -> _Row:
    state = fields["state"]
    known = (*STATES, "observed", LEVEL)
    if state not in known:
        raise TraceError(place, f"unknown state '{state}'", f"one of: {', '.join(known)}")
    try:
        start_s, end_s = float(fields["start_s"]), float(fields["end_s"])
    except (TypeError, ValueError):
        raise TraceError(
            place,
            f"'{fields['start_s']}' to '{fields['end_s']}' is not an interval in seconds",
            "give both as numbers, or leave the row out",
        ) from None
    if not (math.isfinite(start_s) and math.isfinite(end_s)):
        raise TraceError(
            place, f"{start_s:g} to {end_s:g} is not an interval in seconds", "leave rows without a time out"
        )
    if start_s < 0:
        raise TraceError(
            place,
            f"the interval begins at a negative time, {start_s:g} s",
            "count the device's times from midnight before its first row",
        )
    if end_s < start_s:
        raise TraceError(
            place,
            f"the interval ends before it starts: {start_s:g} s to {end_s:g} s",
            "swap the times, or leave the row out",
        )
    return _Row(start_s, end_s, line, _soc(fields, place) if state == LEVEL else math.nan)


def _soc(fields: dict[str, str], place: str) -> float:
    if "soc" not in fields:
        raise TraceError(place, "a level has no column for its reading", "add a fifth column, soc, 0 to 1")
    try:
        soc = float(fields["soc"])
    except (TypeError, ValueError):
        soc = math.nan
    if not 0.0 <= soc <= 1.0:
        raise TraceError(place, f"'{fields['soc']}' is not a state of charge", "expected 0 to 1")
    return soc


def _device(name: str, states: dict[str, list[_Row]], path: Path | str) -> Observed:
    """Make a device's record of its rows, sorted by time."""
    place = f"{path}, device {name}"
    ordered = {state: sorted(rows) for state, rows in states.items()}
    span_s = _span(ordered.pop("observed", []), ordered, place)
    for state, rows in ordered.items():
        _refuse_outside(rows, span_s, f"{place}, {state}", reading=state == LEVEL)
    levels = np.array([(row.start_s, row.soc) for row in ordered.pop(LEVEL, [])]).reshape(-1, 2)
    for state, rows in ordered.items():
        _refuse_overlap(rows, f"{place}, {state}")
    good = {
        state: joined(checked(np.array([row[:2] for row in rows]), f"{place}, {state}"))
        for state, rows in ordered.items()
    }
    return observe(name, span_s, good, place, levels=levels)


def _span(observed: Sequence[_Row], states: Mapping[str, Sequence[_Row]], place: str) -> tuple[float, float]:
    """Return the span in which a device was observed: as it says, or from 0 to the end of its last day."""
    if len(observed) > 1:
        lines = " and ".join(str(row.line) for row in observed[:2])
        raise TraceError(place, f"has more than one 'observed' row, in lines {lines}", "leave one")
    if observed:
        return observed[0].start_s, observed[0].end_s
    first_s = min(rows[0].start_s for rows in states.values() if rows)
    if first_s > _LATEST_START_S:
        raise TraceError(
            place,
            f"it begins {first_s / 86_400:.0f} days after midnight of its first day",
            "count its times from that midnight, not from 1970",
        )
    # A reading's end is not looked at: it holds until the next one.
    last_s = max(
        row.start_s if state == LEVEL else row.end_s for state, rows in states.items() for row in rows
    )
    return 0.0, max(1.0, math.ceil(last_s / 86_400.0)) * 86_400.0


def _refuse_outside(rows: Sequence[_Row], span_s: tuple[float, float], place: str, *, reading: bool) -> None:
    begin_s, end_s = span_s
    for row in rows:
        if row.start_s < begin_s - 1e-6 or (row.start_s if reading else row.end_s) > end_s + 1e-6:
            what = f"the reading at {row.start_s:g} s" if reading else f"{row.start_s:g}–{row.end_s:g} s"
            raise TraceError(
                f"{place}, line {row.line}",
                f"{what} lies outside the span {begin_s:g}–{end_s:g} s",
                "widen the device's 'observed' row, or cut the interval",
            )


def _refuse_overlap(rows: Sequence[_Row], place: str) -> None:
    for one, other in pairwise(rows):
        if other.start_s < one.end_s:
            raise TraceError(
                f"{place}, lines {one.line} and {other.line}",
                f"intervals overlap: {one.start_s:g}–{one.end_s:g} s and {other.start_s:g}–{other.end_s:g} s",
                "make them one, or cut one of them",
            )
