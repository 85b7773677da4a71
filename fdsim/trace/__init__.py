"""The seam between devices and learning: who took part in which round, and why not.

A trace is a table with one row per (round, client). In memory it travels as one `TraceRound` per round (arrays
over the clients); on disk it is one Parquet file. Devices write it, learning reads it, and neither knows the
other.
"""

from __future__ import annotations

from fdsim.trace.file import Trace, open_trace, write_trace
from fdsim.trace.round import (
    NONE,
    SCHEMA,
    Cause,
    Network,
    Outcome,
    Phase,
    TraceRound,
    blank_round,
    plain_round,
)
from fdsim.trace.rows import to_table

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
