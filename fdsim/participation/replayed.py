"""A trace made before, by a fleet, another run or a measurement, played again."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field, PositiveInt, model_validator

from fdsim.errors import InputError, TraceError
from fdsim.participation.base import Participation, ParticipationSetting
from fdsim.trace import TraceRound, open_trace


class Replayed(Participation):
    """Plays a trace.parquet again, round by round."""

    path: str = Field(description="a trace.parquet, as `fdsim trace make` or a run leaves behind")
    clients: PositiveInt | None = Field(default=None, description="number of clients; taken from the file")  # type: ignore[assignment]

    @model_validator(mode="after")
    def _fits(self) -> Replayed:
        try:
            found = open_trace(self.path).clients
        except InputError as error:
            raise ValueError(str(error)) from None
        if self.clients is not None and self.clients != found:
            raise ValueError(f"the trace {self.path} has {found} clients, not {self.clients}")
        return self

    @property
    def client_count(self) -> int:
        """The number of clients K, which the file knows."""
        return open_trace(self.path).clients

    def rounds(self, setting: ParticipationSetting) -> Iterator[TraceRound]:
        """The first rounds of the file."""
        trace = open_trace(self.path)
        if trace.rounds < setting.rounds:
            raise TraceError(
                self.path,
                f"has {trace.rounds} rounds, and {setting.rounds} are wanted",
                f"set rounds = {trace.rounds}",
            )
        for trace_round, _ in zip(trace, range(setting.rounds), strict=False):
            yield trace_round
