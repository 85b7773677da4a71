"""The records of a trace: one round, its codes, and the columns of the same names."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np

TRACE_VERSION = 1
#: Code of a cause, phase or network that does not apply.
NONE = -1
#: Up to this many clients every client has a row in every round; above it only those that were selected.
ALL_LISTED_UP_TO = 100_000


class Outcome(IntEnum):
    """The outcome of a round for a client."""

    completed = 0
    dropped = 1
    not_selected = 2


class Cause(IntEnum):
    """Why a client dropped out."""

    #: at check-in: on no network
    offline = 0
    #: the charge is below what the device, or the rule, asks for
    battery_low = 1
    battery_empty = 2
    #: the screen is on, where the rule asks for an idle device
    in_use = 3
    unplugged = 4
    #: not on Wi-Fi, where the rule asks for an unmetered network
    metered = 5
    #: after check-in: the network went away
    link_lost = 6
    #: not done in time, or still at work when the server closed the round
    deadline = 7
    #: network or power taken away by an outage
    outage = 8
    crashed = 9
    #: by a participation table, which knows no causes
    scripted = 10
    #: it completed, but too few did for the server to use the round
    abandoned = 11


class Phase(IntEnum):
    """The phase of its local round that a client reached."""

    check_in = 0
    download = 1
    train = 2
    upload = 3


class Network(IntEnum):
    """The link a client was on when its round began."""

    none = 0
    wifi = 1
    cellular = 2


ENUMS: dict[str, type[IntEnum]] = {"outcome": Outcome, "cause": Cause, "phase": Phase, "network": Network}

#: trace.parquet, column by column: the type of its array in memory. Codes of the enums are words on disk.
COLUMNS: dict[str, type[np.generic]] = {
    "round": np.int32,
    "client": np.int32,
    "outcome": np.int8,
    "cause": np.int8,
    "phase": np.int8,
    "progress": np.float32,
    "start_s": np.float64,
    "end_s": np.float64,
    "download_s": np.float32,
    "train_s": np.float32,
    "upload_s": np.float32,
    "soc_start": np.float32,
    "soc_end": np.float32,
    "energy_j": np.float32,
    "bytes_down": np.int64,
    "bytes_up": np.int64,
    "network": np.int8,
    "round_start_s": np.float64,
    "round_end_s": np.float64,
}


@dataclass(frozen=True)
class TraceRound:
    """One round of a trace: the outcome for each of the K clients.

    Arrays are [K], codes are of the enums above. `progress` is the fraction of the local training work done, 0..1.
    Times are simulated seconds since midnight of day 0; NaN where a phase was not reached. A client that was
    not selected has NaN times and no cause.
    """

    round: int
    round_start_s: float
    round_end_s: float
    outcome: np.ndarray
    cause: np.ndarray
    phase: np.ndarray
    progress: np.ndarray
    start_s: np.ndarray
    end_s: np.ndarray
    download_s: np.ndarray
    train_s: np.ndarray
    upload_s: np.ndarray
    soc_start: np.ndarray
    soc_end: np.ndarray
    energy_j: np.ndarray
    bytes_down: np.ndarray
    bytes_up: np.ndarray
    network: np.ndarray

    @property
    def clients(self) -> int:
        """The number of clients K."""
        return len(self.outcome)

    @property
    def listed(self) -> np.ndarray:
        """The clients that have a row in tables, ascending: all of them, or of very many only the selected.

        A client without a row was not selected. Client 0 is listed where nobody was selected, so that every
        round has a row.
        """
        if self.clients <= ALL_LISTED_UP_TO:
            return np.arange(self.clients)
        selected = self.selected
        return selected if len(selected) else np.zeros(1, dtype=np.int64)

    @property
    def selected(self) -> np.ndarray:
        """The selected clients, ascending."""
        return np.flatnonzero(self.outcome != Outcome.not_selected)

    @property
    def completed(self) -> np.ndarray:
        """The clients that completed, ascending."""
        return np.flatnonzero(self.outcome == Outcome.completed)

    @property
    def dropped(self) -> np.ndarray:
        """The selected clients that dropped out, ascending."""
        return np.flatnonzero(self.outcome == Outcome.dropped)


CLIENT_COLUMNS = tuple(f.name for f in fields(TraceRound) if not f.name.startswith("round"))


def blank_round(round_index: int, clients: int, start_s: float, end_s: float) -> TraceRound:
    """Make a round in which no client was selected; fill its arrays in place while building it."""
    blanks: dict[str, np.ndarray] = {}
    for name in CLIENT_COLUMNS:
        kind = COLUMNS[name]
        fill: float = (
            NONE if name in ENUMS else (np.nan if name.endswith("_s") or name.startswith("soc") else 0)
        )
        blanks[name] = np.full(clients, fill, dtype=kind)
    blanks["outcome"][:] = Outcome.not_selected
    return TraceRound(round=round_index, round_start_s=start_s, round_end_s=end_s, **blanks)


def plain_round(
    round_index: int,
    active: np.ndarray,
    interval_s: float,
    cause: Cause = Cause.scripted,
    *,
    selected: np.ndarray | None = None,
) -> TraceRound:
    """Make a round from a mask [K] of the active clients, for sources that simulate no devices.

    `selected` are the clients that were selected, ascending; None stands for all of them.
    """
    made = blank_round(round_index, len(active), round_index * interval_s, (round_index + 1) * interval_s)
    who = slice(None) if selected is None else selected
    came = active[who]
    made.outcome[who] = np.where(came, Outcome.completed, Outcome.dropped)
    made.cause[who] = np.where(came, NONE, cause)
    made.phase[who] = np.where(came, Phase.upload, Phase.check_in)
    made.progress[who] = came
    made.start_s[who] = made.round_start_s
    made.end_s[who] = np.where(came, made.round_end_s, made.round_start_s)
    return made
