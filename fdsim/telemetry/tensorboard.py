"""The rounds table for TensorBoard, with simulated time where TensorBoard shows wall time."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fdsim.errors import InputError
from fdsim.telemetry.callback import Callback
from fdsim.telemetry.schema import ROUND_COLUMNS, RoundRow
from fdsim.telemetry.strategy_log import partition

if TYPE_CHECKING:
    from fdsim.scenario import Scenario

_TAGS = tuple(c.name for c in ROUND_COLUMNS if c.name not in ("round", "sim_time_s") and not c.is_wall_time)
#: Real seconds after which what was written can be seen.
_FLUSH_S = 5


def refuse_missing_tensorboard() -> None:
    """Raise an error before anything has run when the package tensorboard is not installed."""
    if find_spec("tensorboard") is None:
        raise InputError(
            "telemetry.tensorboard", "the package tensorboard is not installed", "pip install tensorboard"
        )


class TensorBoard(Callback):
    """Writes one scalar per strategy, round and column of the rounds table into RUN/tensorboard, or into `folder`."""

    def __init__(self, folder: Path | str | None = None) -> None:
        self._folder = None if folder is None else Path(folder)
        self._writer: Any = None
        self._label, self._next_round = "", 0

    def run_begin(self, scenario: Scenario, folder: Path) -> None:
        """Take the run's folder unless one was given."""
        refuse_missing_tensorboard()
        if self._folder is None:
            self._folder = folder / "tensorboard"

    def strategy_begin(self, label: str, next_round: int) -> None:
        """Note where the strategy's steps begin; the files are opened with the first round."""
        self._close()
        self._label, self._next_round = label, next_round

    def round_end(self, label: str, row: RoundRow) -> None:
        """Write one round; nulls are omitted."""
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            # Steps from here on were written by a run that was interrupted; TensorBoard forgets them.
            self._writer = SummaryWriter(
                str((self._folder or Path("tensorboard")) / partition(self._label)),
                purge_step=self._next_round,
                flush_secs=_FLUSH_S,
            )
        values = {tag: getattr(row, tag) for tag in _TAGS}
        # One event per round: add_scalar would make one per column, at twenty times the cost.
        self._writer.file_writer.add_summary(_summary(values), row.round, row.sim_time_s)

    def strategy_end(self, label: str, problem: str | None) -> None:
        """Close the strategy's files."""
        self._close()

    def run_end(self, folder: Path, error: BaseException | None) -> None:
        """Close the files of a strategy that was interrupted."""
        self._close()

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _summary(values: dict[str, float | None]) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary

    return Summary(
        value=[Summary.Value(tag=tag, simple_value=v) for tag, v in values.items() if v is not None]
    )
