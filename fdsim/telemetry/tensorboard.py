"""The rounds table for TensorBoard, with simulated time where TensorBoard shows wall time."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fdsim.errors import InputError
from fdsim.telemetry.schema import ROUND_COLUMNS, RoundRow

_TAGS = tuple(c.name for c in ROUND_COLUMNS if c.name not in ("round", "sim_time_s") and not c.is_wall_time)


def refuse_missing_tensorboard() -> None:
    """Raise an error before anything has run when the package tensorboard is not installed."""
    if find_spec("tensorboard") is None:
        raise InputError(
            "telemetry.tensorboard", "the package tensorboard is not installed", "pip install tensorboard"
        )


class TensorboardWriter:
    """TensorBoard files of one strategy: one scalar per column of the rounds table."""

    def __init__(self, folder: Path, *, next_round: int) -> None:
        self._folder, self.next_round = folder, next_round
        self._writer: Any = None

    def append(self, row: RoundRow) -> None:
        """Write one round; nulls are omitted."""
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            # Steps from here on were written by a run that was interrupted; TensorBoard forgets them.
            self._writer = SummaryWriter(str(self._folder), purge_step=self.next_round)
        values = {tag: getattr(row, tag) for tag in _TAGS}
        # One event per round: add_scalar would make one per column, at twenty times the cost.
        self._writer.file_writer.add_summary(_summary(values), row.round, row.sim_time_s)

    def flush(self) -> None:
        """Write everything to disk."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Close the files."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _summary(values: dict[str, float | None]) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary

    return Summary(
        value=[Summary.Value(tag=tag, simple_value=v) for tag, v in values.items() if v is not None]
    )
