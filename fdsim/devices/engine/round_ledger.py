"""The ledger of a round: who was selected, what is settled of them, and who is called to work on the world's clock.

Most of a large fleet is settled at once, refused at check-in or through a closed-form round. Such a client is a row of
a few bytes, not an object: a fleet has millions of them in a day.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from operator import attrgetter
from struct import Struct

import numpy as np

from fdsim.devices.engine.device import Device
from fdsim.devices.engine.eligible import obstacle, working_network
from fdsim.devices.engine.local_round import LocalRoundResult, RoundRequest
from fdsim.trace import NONE, Outcome, Phase, TraceRound, blank_round

#: Rows of clients refused at check-in: packed one by one, read as an array at the close.
REFUSED = np.dtype([("client", "i4"), ("cause", "i1"), ("network", "i1"), ("soc", "f8")])
pack_refused = Struct("=ibbd").pack

#: Rows of clients that completed a closed-form round; the times are those at which its phases ended.
COMPLETED = np.dtype(
    [("client", "i4"), ("network", "i1")]
    + [
        (name, "f8")
        for name in ("soc_start", "soc_end", "download_end_s", "train_end_s", "end_s", "energy_j")
    ]
)
pack_completed = Struct("=ibdddddd").pack

#: Rows of clients that worked on a clock: the fields of `LocalRoundResult`.
_RESULT_COLUMNS = tuple(column.name for column in fields(LocalRoundResult))
_NARROW = {"network": "i1", "cause": "i1", "phase": "i1", "bytes_down": "i8", "bytes_up": "i8"}
WORKED = np.dtype([("client", "i4"), *((name, _NARROW.get(name, "f8")) for name in _RESULT_COLUMNS)])
_pack_worked = Struct(
    "=i" + "".join({"i1": "b", "i8": "q"}.get(_NARROW.get(n, ""), "d") for n in _RESULT_COLUMNS)
).pack
_result_row = attrgetter(*_RESULT_COLUMNS)
_CHECK_IN = Phase.check_in


@dataclass(slots=True)
class RoundLedger:
    """What is known of a round's clients so far."""

    request: RoundRequest
    selected: np.ndarray
    """[S] the clients that the server has selected, ascending."""
    called: dict[int, LocalRoundResult] = field(default_factory=dict)
    """Who works on the world's clock, with the result to be filled in."""
    worked: bytearray = field(default_factory=bytearray)
    refused: bytearray = field(default_factory=bytearray)
    completed: bytearray = field(default_factory=bytearray)

    def check_in(self, device: Device) -> LocalRoundResult | None:
        """Let a device live up to the start of the round; return the result to be filled in if it can take part.

        A device that cannot is settled here.
        """
        request = self.request
        device.advance(request.start_s)
        cause = obstacle(device, _CHECK_IN)
        device.note("check_in", float(request.round_index))
        if cause is None:
            device.free_frac = 1.0 - device.group.compute.load(device.rng)
            return LocalRoundResult(request.start_s, device.soc, device.surroundings.link.network)
        device.note("dropped", float(cause))
        self.refused += pack_refused(device.client, cause, working_network(device), device.soc)
        return None

    def note_worked(self, client: int, result: LocalRoundResult) -> None:
        """Settle a client that has worked on a clock."""
        self.worked += _pack_worked(client, *_result_row(result))

    def last_end_s(self) -> float:
        """Return when the last closed-form round ends; −inf if there is none."""
        return float(np.frombuffer(self.completed, COMPLETED)["end_s"].max(initial=-np.inf))

    def as_trace(self, clients: int) -> TraceRound:
        """Return the round of the trace, once every client called has reported."""
        request = self.request
        for client, result in self.called.items():
            self.note_worked(client, result)
        worked = np.frombuffer(self.worked, WORKED)
        end_s = float(worked["end_s"].max(initial=request.start_s))
        made = blank_round(request.round_index, clients, request.start_s, max(end_s, self.last_end_s()))
        self._write_worked(made, worked)
        self._write_refused(made)
        self._write_completed(made)
        return made

    def _write_worked(self, made: TraceRound, rows: np.ndarray) -> None:
        clients = rows["client"]
        for name in _RESULT_COLUMNS:
            getattr(made, name)[clients] = rows[name]
        made.outcome[clients] = np.where(rows["cause"] == NONE, Outcome.completed, Outcome.dropped)

    def _write_refused(self, made: TraceRound) -> None:
        rows = np.frombuffer(self.refused, REFUSED)
        clients = rows["client"]
        made.outcome[clients], made.phase[clients] = Outcome.dropped, Phase.check_in
        made.start_s[clients] = made.end_s[clients] = self.request.start_s
        made.soc_start[clients] = made.soc_end[clients] = rows["soc"]
        made.cause[clients], made.network[clients] = rows["cause"], rows["network"]

    def _write_completed(self, made: TraceRound) -> None:
        rows, request = np.frombuffer(self.completed, COMPLETED), self.request
        clients, down_s, train_s = rows["client"], rows["download_end_s"], rows["train_end_s"]
        made.outcome[clients], made.phase[clients] = Outcome.completed, Phase.upload
        made.progress[clients], made.start_s[clients] = 1.0, request.start_s
        made.download_s[clients], made.train_s[clients] = down_s - request.start_s, train_s - down_s
        made.upload_s[clients] = rows["end_s"] - train_s
        made.bytes_down[clients], made.bytes_up[clients] = request.bytes_down, request.bytes_up
        for name in ("network", "soc_start", "soc_end", "end_s", "energy_j"):
            getattr(made, name)[clients] = rows[name]
