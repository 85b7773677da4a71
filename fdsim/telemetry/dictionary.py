"""The data dictionary: what every column of a run's tables means."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from fdsim.telemetry.schema import TABLES
from fdsim.trace import SCHEMA as TRACE_SCHEMA

STRATEGY = ("strategy", "word", "label of the strategy; a folder name on disk, a column when read")

#: trace.parquet, whose schema is in fdsim.trace.
_TRACE_MEANINGS = {
    "round": "round, from 0",
    "client": "client, from 0; above 100 000 clients one without a row was not selected",
    "outcome": "completed, dropped or not_selected",
    "cause": "why it dropped out; null unless dropped",
    "phase": "last phase of its local round that it reached: check_in, download, train or upload; null unless selected",
    "progress": "fraction of the local training work done, 0..1",
    "start_s": "simulated time at which its local round began, s; null unless selected",
    "end_s": "simulated time at which its local round ended, completed or not, s; null unless selected",
    "download_s": "simulated duration of the download, s; null when not reached",
    "train_s": "simulated duration of the training, s; null when not reached",
    "upload_s": "simulated duration of the upload, s; null when not reached",
    "soc_start": "state of charge at the start, 0..1; null without a battery",
    "soc_end": "state of charge at the end, 0..1; null without a battery",
    "energy_j": "energy spent on its local round, J",
    "bytes_down": "bytes downloaded",
    "bytes_up": "bytes uploaded",
    "network": "link at the start: none, wifi or cellular; null unless selected",
    "round_start_s": "simulated time at which the round began, s",
    "round_end_s": "simulated time at which the round ended, s",
}


@dataclass(frozen=True)
class Entry:
    """One line of the dictionary."""

    name: str
    type: str
    meaning: str


def dictionary() -> dict[str, list[Entry]]:
    """Return all tables and their columns, in order."""
    found = {"trace": [Entry(f.name, _word(f.type), _TRACE_MEANINGS[f.name]) for f in TRACE_SCHEMA]}
    for table, columns in TABLES.items():
        entries = [Entry(c.name, _word(c.type), c.meaning) for c in columns]
        found[table] = entries if table == "events" else [Entry(*STRATEGY), *entries]
    return found


def _word(kind: pa.DataType) -> str:
    if pa.types.is_dictionary(kind):
        return "word"
    return {"double": "float64", "float": "float32"}.get(str(kind), str(kind))


def as_markdown() -> str:
    """Return the dictionary as Markdown tables, as in the README beside this file."""
    blocks = []
    for table, entries in dictionary().items():
        lines = [f"### {table}", "", "| column | type | meaning |", "| --- | --- | --- |"]
        lines += [f"| {e.name} | {e.type} | {e.meaning.replace('|', chr(92) + '|')} |" for e in entries]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"
