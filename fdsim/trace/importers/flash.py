"""Import FLASH state logs: {id: {guid, model, messages: "YYYY-MM-DD HH:MM:SS \\tevent\\n…"}}.

Quirks of these logs, and what is done about them: lines are not always in the order of time (they are
sorted); a state lasts until its next event; nothing is known before the first event of a kind, so the
device counts as not idle, not charging, not on a network until then. Events of the same second come in any order:
of two that contradict each other, that one is taken to be the later which the next event of the kind undoes. Battery readings
are kept; a single 0.0 % between readings above 5 % is a fault of the logger and is left out.

Silent screens: a screen that is on for hours in which nothing else is logged has most likely been switched off
without an event (with the screen on, the battery alone is logged every few minutes). With `silent_screen_s`, a
screen counts as off during any silence of the log longer than that. The default, 0, takes the log as it is, as the
published figures of these phones do.
"""

from __future__ import annotations

import json
import math
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from fdsim.errors import TraceError
from fdsim.trace.availability import Observed, observe
from fdsim.trace.intervals import complement, intersection, joined

#: event → what it says about each state.
_EVENTS: dict[str, dict[str, bool]] = {
    "screen_on": {"idle": False},
    "screen_off": {"idle": True},
    "battery_charged_on": {"charging": True},
    "battery_charged_off": {"charging": False},
    "wifi": {"wifi": True, "cellular": False},
    **{name: {"wifi": False, "cellular": True} for name in ("2G", "3G", "4G", "5G")},
    "Unknown": {"wifi": False, "cellular": False},
    "screen_lock": {},
    "screen_unlock": {},
}


#: A reading of exactly 0 is believed if one beside it is no higher than this.
_NEARLY_EMPTY = 0.05


def read_flash(path: Path | str, *, silent_screen_s: float = 0.0) -> list[Observed]:
    """Read a FLASH JSON file; screens count as off in silences longer than `silent_screen_s`, 0 for never."""
    path = Path(path)
    if not (math.isfinite(silent_screen_s) and silent_screen_s >= 0):
        raise TraceError("silent_screen_s", f"{silent_screen_s} is not a time of 0 s or more")
    try:
        devices = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise TraceError(str(path), f"not readable as JSON ({error})") from None
    if not isinstance(devices, dict) or not devices:
        raise TraceError(str(path), "not a table of devices", 'expected {"id": {"messages": "…"}, …}')
    return [
        _device(str(name), entry, f"{path}, device {name}", silent_screen_s)
        for name, entry in devices.items()
    ]


def _device(name: str, entry: Any, place: str, silent_screen_s: float) -> Observed:
    if not isinstance(entry, dict) or not isinstance(entry.get("messages"), str):
        raise TraceError(place, "has no 'messages' text")
    lines = [
        _line(line, f"{place}, line {number}")
        for number, line in enumerate(entry["messages"].split("\n"), 1)
        if line.strip()
    ]
    if not lines:
        raise TraceError(place, "has no messages")
    lines.sort(key=lambda line: line[0])
    midnight = lines[0][0].replace(hour=0, minute=0, second=0)
    begin_s, end_s = ((lines[i][0] - midnight).total_seconds() for i in (0, -1))
    times_s = np.array([(time - midnight).total_seconds() for time, _ in lines])
    changes: dict[str, list[tuple[float, bool]]] = {"idle": [], "charging": [], "wifi": [], "cellular": []}
    for t_s, (_, event) in zip(times_s.tolist(), lines, strict=True):
        for state, on in _EVENTS.get(event, {}).items():
            changes[state].append((t_s, on))
    states = {state: _intervals(found, end_s) for state, found in changes.items()}
    if silent_screen_s > 0:
        gaps = np.column_stack([times_s[:-1], times_s[1:]])
        silent = gaps[np.diff(gaps, axis=1).ravel() > silent_screen_s]
        unseen = intersection(complement(states["idle"], begin_s, end_s), silent)
        states["idle"] = joined(np.array(sorted([*states["idle"].tolist(), *unseen.tolist()])).reshape(-1, 2))
    return observe(name, (begin_s, end_s), states, place, levels=_levels(times_s, lines))


def _intervals(changes: list[tuple[float, bool]], end_s: float) -> np.ndarray:
    """When a state was on, given its events in the order of time."""
    found: list[tuple[float, float]] = []
    since_s: float | None = None
    for index, (t_s, on) in enumerate(changes):
        if index + 1 < len(changes) and changes[index + 1][0] == t_s:
            continue
        if index > 0 and changes[index - 1] == (t_s, not on) and index + 1 < len(changes):
            on = not changes[index + 1][1]
        if on and since_s is None:
            since_s = t_s
        elif not on and since_s is not None:
            found.append((since_s, t_s))
            since_s = None
    if since_s is not None:
        found.append((since_s, end_s))
    return np.array(found).reshape(-1, 2)


def _levels(times_s: np.ndarray, lines: list[tuple[datetime, str]]) -> np.ndarray:
    found = [
        (t_s, _soc(event))
        for t_s, (_, event) in zip(times_s.tolist(), lines, strict=True)
        if event.endswith("%")
    ]
    levels = np.array(found).reshape(-1, 2)
    soc = levels[:, 1]
    before, after = np.append(soc[:1], soc[:-1]), np.append(soc[1:], soc[-1:])
    spurious = (soc == 0.0) & (before > _NEARLY_EMPTY) & (after > _NEARLY_EMPTY)
    return np.asarray(levels[~spurious])


def _soc(event: str) -> float:
    """Return the state of charge of a reading such as 55.0%; NaN if it is none."""
    try:
        return float(event[:-1]) / 100.0
    except ValueError:
        return math.nan


def _line(line: str, place: str) -> tuple[datetime, str]:
    stamp, _, event = line.partition("\t")
    event = event.strip()
    try:
        time = datetime.strptime(stamp.strip(), "%Y-%m-%d %H:%M:%S")
    except ValueError:
        raise TraceError(
            place, f"'{stamp.strip()}' is not a time", "expected YYYY-MM-DD HH:MM:SS, a tab, an event"
        ) from None
    if event not in _EVENTS and not event.endswith("%"):
        raise TraceError(
            place, f"unknown event '{event}'", f"one of: {', '.join(_EVENTS)}, or a battery level NN.N%"
        )
    if event.endswith("%") and not 0.0 <= _soc(event) <= 1.0:
        raise TraceError(
            place, f"'{event}' is not a battery level between 0 and 100 %", "leave that line out"
        )
    return time, event
