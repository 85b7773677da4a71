"""What one strategy writes while it learns, and where it continues after an interruption."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from fdsim.errors import InputError, RunFolderError, StorageError
from fdsim.files import TEMPORARY
from fdsim.telemetry import checkpoint
from fdsim.telemetry.config import Telemetry
from fdsim.telemetry.manifest import Manifest
from fdsim.telemetry.parts import GrowingTable
from fdsim.telemetry.rows import clients_table, rounds_table, similarity_table
from fdsim.telemetry.schema import ClientRows, RoundRow, SimilaritySnapshot, file_schema
from fdsim.telemetry.tensorboard import TensorboardWriter

#: Rows that may wait in memory before they go to disk whatever the clock says.
_WAITING_ROWS = 65_536
#: Automatic checkpoints are at least this long apart, and take at most this fraction of the time. Two flushes may be
#: the same fraction of the time since the start apart, so that the number of parts stays in the hundreds.
_PAUSE_S, _FRAC = 2.0, 0.01


def partition(label: str) -> str:
    """Return the folder name of a strategy, which readers of hive partitions turn into its label."""
    name = "strategy=" + quote(label, safe=" ")
    if not label or len(name.encode()) > 200:
        raise InputError(
            "strategies", f"{label!r} cannot name a strategy", "give it a label of 1 to about 60 characters"
        )
    return name.replace(" ", "%20")


class StrategyLog:
    """The tables and checkpoints of one strategy; use it as a context manager."""

    def __init__(self, folder: Path, label: str, manifest: Manifest, telemetry: Telemetry) -> None:
        self.label, self._manifest, self._telemetry = label, manifest, telemetry
        self.next_round = 0
        name, temporary, scenario_hash = partition(label), folder / TEMPORARY, manifest["scenario_hash"]
        self._tables = {
            table: GrowingTable(
                folder / table / name,
                file_schema(table, scenario_hash=scenario_hash, strategy=label),
                temporary,
            )
            for table in _TO_TABLE
        }
        self._checkpoints, self._temporary = folder / "checkpoints" / name, temporary
        self._tensorboard = (
            TensorboardWriter(folder / "tensorboard" / name, next_round=0) if telemetry.tensorboard else None
        )
        self._last_good: checkpoint.Checkpoint | None = None
        self._waiting: dict[str, list[Any]] = {t: [] for t in _TO_TABLE}
        self._waiting_rows, self._flushed_s = 0, time.monotonic()
        self._started_s = self._saved_s = time.monotonic()
        self._save_cost_s = 0.0

    @property
    def _facts(self) -> dict[str, Any]:
        return dict(self._manifest["strategies"].get(self.label, {}))

    @property
    def finished(self) -> bool:
        """Whether all its rounds are learned, or it has failed permanently: it is not run again."""
        return self._facts.get("status") in ("complete", "failed")

    def __enter__(self) -> StrategyLog:
        if self.finished:
            return self
        self._last_good = checkpoint.last_good(self._checkpoints)
        self.next_round = self._last_good.next_round if self._last_good else 0
        for table in self._tables.values():
            table.open(self.next_round)
        if self._tables["rounds"].rows != self.next_round:
            raise RunFolderError(
                str(self._tables["rounds"].folder),
                f"{self._tables['rounds'].rows} rounds are on disk, the checkpoint says {self.next_round}",
                "restore the missing parts from a copy, or run again with --force",
            )
        self._manifest.update_strategy(self.label, status="running", rounds_done=self.next_round)
        if self._tensorboard is not None:
            self._tensorboard.next_round = self.next_round
        self._started_s = self._flushed_s = self._saved_s = time.monotonic()
        return self

    def checkpoint_state(self) -> dict[str, Any] | None:
        """Return the state to continue from, or None when the strategy starts at round 0."""
        return self._last_good.state() if self._last_good else None

    def append(self, row: RoundRow, clients: ClientRows, snapshot: SimilaritySnapshot | None = None) -> None:
        """Record one round; it is on disk after `flush_every_s` at the latest."""
        self._waiting["rounds"].append(row)
        rows = 1
        if self._telemetry.clients:
            self._waiting["clients"].append(clients)
            rows += len(clients.outcome)
        if snapshot is not None:
            self._waiting["similarity"].append(snapshot)
            rows += len(snapshot.first)
        if self._tensorboard is not None:
            self._tensorboard.append(row)
        self._waiting_rows += rows
        late = time.monotonic() - self._flushed_s >= self._spaced(self._telemetry.flush_every_s)
        if late or self._waiting_rows >= _WAITING_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write all waiting rows to disk."""
        self._manifest.guard()
        for name, waiting in self._waiting.items():
            table = self._tables[name]
            # An interrupt may have come after the rows went to disk and before they left this list.
            fresh = [record for record in waiting if record.round >= table.next_round]
            if fresh:
                table.append(_TO_TABLE[name](fresh), next_round=fresh[-1].round + 1)
            self._waiting[name] = []
        if self._tensorboard is not None:
            self._tensorboard.flush()
        self._waiting_rows, self._flushed_s = 0, time.monotonic()

    def checkpoint_due(self, next_round: int) -> bool:
        """Whether a checkpoint is to be made now, before round `next_round`."""
        every = self._telemetry.checkpoint_every
        if every == "auto":
            return time.monotonic() - self._saved_s >= self._spaced(max(_PAUSE_S, self._save_cost_s / _FRAC))
        return next_round % every == 0

    def _spaced(self, pause_s: float) -> float:
        return max(pause_s, _FRAC * (time.monotonic() - self._started_s))

    def checkpoint(self, state: dict[str, Any], next_round: int) -> None:
        """Write rows and state to disk, in this order: a checkpoint never promises rows that are missing."""
        began_s = time.monotonic()
        self.flush()
        checkpoint.save(self._checkpoints, state, next_round, temporary=self._temporary)
        self._saved_s = time.monotonic()
        self._save_cost_s = self._saved_s - began_s

    def finish(self) -> None:
        """Mark the strategy as complete and remove its checkpoints."""
        self.flush()
        self._end(status="complete")
        checkpoint.clear(self._checkpoints)

    def merge(self) -> None:
        """Merge the small parts of all tables."""
        for table in self._tables.values():
            table.merge()

    def fail(self, message: str) -> None:
        """Mark the strategy as failed permanently (NaN, say); the others continue."""
        self.flush()
        self._end(status="failed", message=message)

    def _end(self, **facts: Any) -> None:
        wall_s = self._facts.get("wall_s", 0.0) + time.monotonic() - self._started_s
        rows = {name: table.rows for name, table in self._tables.items()}
        self._manifest.update_strategy(
            self.label, rounds_done=rows["rounds"], rows=rows, wall_s=round(wall_s, 3), **facts
        )

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: object
    ) -> None:
        try:
            if not self.finished and not isinstance(value, StorageError):
                self.flush()
                self._end(status="stopped")
        finally:
            if self._tensorboard is not None:
                self._tensorboard.close()


_TO_TABLE: dict[str, Callable[[Any], pa.Table]] = {
    "rounds": rounds_table,
    "clients": clients_table,
    "similarity": similarity_table,
}
