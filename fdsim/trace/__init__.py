"""The seam between devices and learning: who took part in which round, and why not.

A trace is a table with one row per (round, client). In memory it travels as one `TraceRound` per round (arrays
over the clients); on disk it is one Parquet file. Devices write it, learning reads it, and neither knows the
other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fdsim.trace.round import (
    NONE,
    Cause,
    Network,
    Outcome,
    Phase,
    TraceRound,
    blank_round,
    plain_round,
)

if TYPE_CHECKING:
    from fdsim.trace.file import Trace, open_trace, write_trace
    from fdsim.trace.rows import SCHEMA, to_table

#: What needs Arrow is imported on first use: to read a scenario, the words of a trace are enough.
_WITH_ARROW = {
    "SCHEMA": "fdsim.trace.rows",
    "Trace": "fdsim.trace.file",
    "open_trace": "fdsim.trace.file",
    "to_table": "fdsim.trace.rows",
    "write_trace": "fdsim.trace.file",
}


__all__ = [
    "NONE",
    "SCHEMA",
    "Cause",
    "Network",
    "Outcome",
    "Phase",
    "Trace",
    "TraceRound",
    "blank_round",
    "open_trace",
    "plain_round",
    "to_table",
    "write_trace",
]


def __getattr__(name: str) -> Any:
    if name not in _WITH_ARROW:
        raise AttributeError(f"module 'fdsim.trace' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_WITH_ARROW[name]), name)
