"""The roll call of a round: who was asked, what is settled of them already, and who is called to work.

Most of a large fleet is settled at once, refused at check-in or through a calm round. Such a client is a few bytes in
a row, not an object: a fleet has millions of them in a day.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from operator import attrgetter
from struct import Struct

import numpy as np

from fdsim.devices.engine.local_round import LocalRoundResult, RoundRequest
from fdsim.trace import NONE, Outcome, Phase, TraceRound, blank_round

#: Rows of those refused: client, cause, network, state of charge. Packed here, read as an array at the close.
REFUSED = np.dtype([("client", "i4"), ("cause", "i1"), ("network", "i1"), ("soc", "f8")])
pack_refused = Struct("=ibbd").pack

#: Rows of those who completed a calm round: client, network, charges at start and end, the ends of download, training
#: and upload, energy.
COMPLETED = np.dtype(
    [("client", "i4"), ("network", "i1")]
    + [
        (name, "f8")
        for name in ("soc_start", "soc_end", "download_end_s", "train_end_s", "end_s", "energy_j")
    ]
)
pack_completed = Struct("=ibdddddd").pack

_ANSWER_COLUMNS = tuple(column.name for column in fields(LocalRoundResult))
_ROW = attrgetter(*_ANSWER_COLUMNS)


@dataclass(slots=True)
class RoundLedger:
    """What is known of a round before anybody in it is called."""

    asked: int
    called: dict[int, tuple[LocalRoundResult, float]] = field(default_factory=dict)
    """Who must work it out on the world's clock: the result to be filled, and the share of the processor that is free."""
    refused: bytearray = field(default_factory=bytearray)
    completed: bytearray = field(default_factory=bytearray)

    def last_end_s(self) -> float:
        """When the last of the calm rounds ends; −inf if there is none."""
        return float(np.frombuffer(self.completed, COMPLETED)["end_s"].max(initial=-np.inf))

    def as_trace(self, request: RoundRequest, clients: int) -> TraceRound:
        """The round of the trace, once everybody called has answered."""
        end_s = max((result.end_s for result, _ in self.called.values()), default=request.start_s)
        made = blank_round(request.round_index, clients, request.start_s, max(end_s, self.last_end_s()))
        self._write_called(made)
        self._write_refused(made, request.start_s)
        self._write_completed(made, request)
        return made

    def _write_called(self, made: TraceRound) -> None:
        clients = np.fromiter(self.called, dtype=np.int64, count=len(self.called))
        rows = zip(*(_ROW(result) for result, _ in self.called.values()), strict=True)
        for name, values in zip(_ANSWER_COLUMNS, rows, strict=False):
            getattr(made, name)[clients] = values
        made.outcome[clients] = np.where(made.cause[clients] == NONE, Outcome.completed, Outcome.dropped)

    def _write_refused(self, made: TraceRound, start_s: float) -> None:
        rows = np.frombuffer(self.refused, REFUSED)
        clients = rows["client"]
        made.outcome[clients], made.phase[clients] = Outcome.dropped, Phase.check_in
        made.start_s[clients] = made.end_s[clients] = start_s
        made.soc_start[clients] = made.soc_end[clients] = rows["soc"]
        made.cause[clients], made.network[clients] = rows["cause"], rows["network"]

    def _write_completed(self, made: TraceRound, request: RoundRequest) -> None:
        rows, start_s = np.frombuffer(self.completed, COMPLETED), request.start_s
        clients, down_s, train_s = rows["client"], rows["download_end_s"], rows["train_end_s"]
        made.outcome[clients], made.phase[clients], made.progress[clients] = (
            Outcome.completed,
            Phase.upload,
            1.0,
        )
        made.start_s[clients] = start_s
        made.download_s[clients], made.train_s[clients] = down_s - start_s, train_s - down_s
        made.upload_s[clients] = rows["end_s"] - train_s
        made.bytes_down[clients], made.bytes_up[clients] = request.bytes_down, request.bytes_up
        for name in ("network", "soc_start", "soc_end", "end_s", "energy_j"):
            getattr(made, name)[clients] = rows[name]
