"""Replay a trace that a fleet, another run or a measurement made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import Field, PositiveInt, model_validator

from fdsim.errors import InputError, TraceError
from fdsim.participation.base import Participation, ParticipationSetting
from fdsim.trace import TraceRound

if TYPE_CHECKING:
    from fdsim.trace import Trace


class Replayed(Participation):
    """Replays a trace.parquet, round by round."""

    path: str = Field(
        description="a trace.parquet, as written by `fdsim trace make` or a run, seen from the folder in which fdsim is called"
    )
    clients: PositiveInt | None = Field(
        default=None, description="number of clients; by default that of the file"
    )  # type: ignore[assignment]

    @model_validator(mode="after")
    def _fits(self) -> Replayed:
        try:
            found = self._opened().clients
        except InputError as error:
            raise ValueError(str(error)) from None
        if self.clients is not None and self.clients != found:
            raise ValueError(f"the trace {self.path} has {found} clients, not {self.clients}")
        return self

    def _opened(self) -> Trace:
        # Imported here, so that to list this kind needs no Arrow.
        from fdsim.trace import open_trace

        return open_trace(self.path)

    @property
    def client_count(self) -> int:
        """The number of clients K in the file."""
        return self._opened().clients

    def check_rounds(self, rounds: int) -> None:
        """Raise an error if the file has fewer rounds."""
        found = self._opened().rounds
        if found < rounds:
            raise TraceError(
                self.path, f"has {found} rounds, and {rounds} are wanted", f"set rounds = {found}"
            )

    def rounds(self, setting: ParticipationSetting) -> Iterator[TraceRound]:
        """Yield the first rounds of the file."""
        self.check_rounds(setting.rounds)
        trace = self._opened()
        for trace_round, _ in zip(trace, range(setting.rounds), strict=False):
            yield trace_round
