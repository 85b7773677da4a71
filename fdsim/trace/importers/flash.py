"""Import FLASH state logs: {id: {guid, model, messages: "YYYY-MM-DD HH:MM:SS \\tevent\\n…"}}.

Quirks of these logs, and what is done about them: lines are not always in the order of time (they are
sorted); a state lasts until its next event; nothing is known before the first event of a kind, so the
device counts as not idle, not charging, not on a network until then.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from fdsim.errors import TraceError
from fdsim.trace.availability import Observed, observe

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


def read_flash(path: Path | str) -> list[Observed]:
    """Read a FLASH JSON file."""
    path = Path(path)
    try:
        devices = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise TraceError(str(path), f"not readable as JSON ({error})") from None
    if not isinstance(devices, dict) or not devices:
        raise TraceError(str(path), "not a table of devices", 'expected {"id": {"messages": "…"}, …}')
    return [_device(str(name), entry, f"{path}, device {name}") for name, entry in devices.items()]


def _device(name: str, entry: Any, place: str) -> Observed:
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
    since: dict[str, float] = {}
    found: dict[str, list[tuple[float, float]]] = {"idle": [], "charging": [], "wifi": [], "cellular": []}
    for time, event in lines:
        t_s = (time - midnight).total_seconds()
        for state, on in _EVENTS.get(event, {}).items():
            if on:
                since.setdefault(state, t_s)
            elif state in since:
                found[state].append((since.pop(state), t_s))
    for state, start_s in since.items():
        found[state].append((start_s, end_s))
    return observe(name, (begin_s, end_s), {s: np.array(i).reshape(-1, 2) for s, i in found.items()}, place)


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
    return time, event
