"""What one strategy writes while it learns, and where it continues after an interruption."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import pyarrow as pa

from fdsim.errors import InputError, RunFolderError, StorageError
from fdsim.files import TEMPORARY, file_hash, storage_errors
from fdsim.telemetry import checkpoint
from fdsim.telemetry.config import Telemetry
from fdsim.telemetry.manifest import Manifest, simulation_hash
from fdsim.telemetry.models import FOLDER as MODELS
from fdsim.telemetry.models import model_name, save_model
from fdsim.telemetry.parts import GrowingTable, digests, seals_of
from fdsim.telemetry.rows import clients_table, rounds_table, similarity_table
from fdsim.telemetry.schema import ClientRows, RoundRow, SimilaritySnapshot, file_schema

log = logging.getLogger("fdsim.telemetry")

Learner = TypeVar("Learner")

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
        self._models = folder / MODELS / name
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
        if self.digests_known or self._facts.get("digests_so_far"):
            # From here on the tables change; a kill must not make them look edited.
            self.record_digests(known=False)
        self._continue()
        self._manifest.update_strategy(self.label, status="running", rounds_done=self.next_round)
        self._started_s = self._flushed_s = self._saved_s = time.monotonic()
        return self

    def _continue(self) -> None:
        """Take the tables back to the last good checkpoint, or to nothing."""
        self._last_good = checkpoint.last_good(self._checkpoints)
        self.next_round = self._last_good.next_round if self._last_good else 0
        try:
            for table in self._tables.values():
                table.open(self.next_round, simulation_hash(self._manifest))
            found = self._tables["rounds"].rows
            if found != self.next_round:
                folder = self._tables["rounds"].folder
                raise RunFolderError(
                    str(folder), f"{found} rounds are on disk, the checkpoint says {self.next_round}"
                )
        except RunFolderError as error:
            self.start_over(str(error))
        if self._last_good is not None and self._last_good.tables not in ((), self._promise()):
            raise self._edited("the tables are not those that the checkpoint was made with")

    def _promise(self) -> tuple[str, ...]:
        """Return what the tables are now, short enough for a checkpoint's header."""
        return tuple(table.digest[:16] for table in self._tables.values())

    def _edited(self, problem: str) -> RunFolderError:
        return RunFolderError(
            f"strategy '{self.label}' in {self._manifest.path.parent}",
            f"{problem}: a table or the trace was edited",
            "restore the files from a copy, or start over with --force",
        )

    def damage(self) -> str | None:
        """Say what is wrong with the tables of a strategy, or None; raise an error where they were edited with care."""
        known = self._facts.get("digests")
        rows = self._facts.get("rows", {}) if self.finished or known else {}
        found = [table.damage(rows.get(name)) for name, table in self._tables.items()]
        if not any(found) and known and known != self._digests_on_disk():
            raise self._edited("the tables are not as the run left them")
        return next(filter(None, found), None)

    def lost_model(self) -> str | None:
        """Say which of the models that were kept is lost or damaged, or None."""
        for name, known_hash in self._facts.get("models", {}).items():
            path = self._models / name
            if not path.is_file() or file_hash(path) != known_hash:
                return f"{path} is lost or damaged"
        return None

    def _digests_on_disk(self) -> dict[str, str]:
        return {
            name: digests(simulation_hash(self._manifest), seals_of(table.folder))[-1]
            for name, table in self._tables.items()
        }

    def forget(self) -> None:
        """Let a finished strategy be learned again, from its first round."""
        self._manifest.update_strategy(self.label, status="waiting", rounds_done=0, rows={}, digests=None)

    def start_over(self, why: str) -> None:
        """Remove the strategy's tables and checkpoints: the same rounds, learned again, are the same rows."""
        log.warning("%s is learned again from its first round: %s", self.label, why)
        if self._facts.get("digests_so_far"):
            self.record_digests(known=False)
        checkpoint.clear(self._checkpoints)
        self._last_good, self.next_round = None, 0
        for table in self._tables.values():
            table.clear()

    def record_digests(self, *, known: bool) -> None:
        """Record what the finished tables are, or that they are about to change and so are not known."""
        found = self._digests_on_disk() if known else None
        self._manifest.update_strategy(self.label, digests=found, digests_so_far=None)

    @property
    def digests_known(self) -> bool:
        """Whether the manifest says what the tables are."""
        return bool(self._facts.get("digests"))

    def restored(self, rebuild: Callable[[dict[str, Any]], Learner]) -> Learner | None:
        """Return what `rebuild` makes of the last checkpoint's state; None when the strategy starts at round 0.

        Of a checkpoint with a valid seal and bad content, whatever error that leads to, the one before is used.
        """
        while self._last_good is not None:
            try:
                return rebuild(self._last_good.state())
            except OSError as error:
                raise StorageError(f"{self._last_good.path}: cannot be read ({error.strerror})") from error
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
                log.warning(
                    "%s has bad content (%s); the one before is used", self._last_good.path, why[:200]
                )
                with storage_errors(self._last_good.path):
                    self._last_good.path.unlink()
                self._continue()
        return None

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
        self._waiting_rows += rows
        late = time.monotonic() - self._flushed_s >= self._spaced(self._telemetry.flush_every_s)
        if late or self._waiting_rows >= _WAITING_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write all waiting rows to disk, and record what the tables are now: an edit shows, whatever comes after."""
        if self._write_waiting():
            self._manifest.update_strategy(self.label, digests_so_far=self._digests())

    def _write_waiting(self) -> bool:
        """Write all waiting rows to disk, and return whether there were any."""
        self._manifest.guard()
        wrote = False
        for name, waiting in self._waiting.items():
            table = self._tables[name]
            # An interrupt may have come after the rows went to disk and before they left this list.
            fresh = [record for record in waiting if record.round >= table.next_round]
            if fresh:
                table.append(_TO_TABLE[name](fresh), next_round=fresh[-1].round + 1)
                wrote = True
            self._waiting[name] = []
        self._waiting_rows, self._flushed_s = 0, time.monotonic()
        return wrote

    def _digests(self) -> dict[str, str]:
        return {name: table.digest for name, table in self._tables.items()}

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
        tables = self._promise()
        checkpoint.save(self._checkpoints, state, next_round, temporary=self._temporary, tables=tables)
        self._saved_s = time.monotonic()
        self._save_cost_s = self._saved_s - began_s

    def keep_model(self, state: dict[str, Any], round_index: int) -> None:
        """Write the global model after a round as a torch state dict."""
        self._manifest.update_strategy(self.label, models=self._with_model(state, round_index))

    def _with_model(self, state: dict[str, Any], round_index: int | None) -> dict[str, str]:
        """Write a global model, the final one for None, and return the hashes of all that are kept."""
        name = model_name(round_index)
        found = save_model(self._models / name, state, temporary=self._temporary)
        return {**self._facts.get("models", {}), name: found}

    def finish(self, model: dict[str, Any] | None = None) -> None:
        """Keep the final global model, if any, mark the strategy as complete and remove its checkpoints."""
        self._write_waiting()
        # The model and the mark are one write of run.json: until then the strategy goes on from its checkpoint.
        self._end(status="complete", **({} if model is None else {"models": self._with_model(model, None)}))
        checkpoint.clear(self._checkpoints)

    def merge(self) -> None:
        """Merge the small parts of all tables, and record what the tables are where that is not known."""
        small = [table for table in self._tables.values() if table.mergeable]
        if small:
            # A kill while parts are merged must not make them look changed.
            self.record_digests(known=False)
            for table in small:
                table.merge()
        if not self.digests_known:
            self.record_digests(known=True)

    def fail(self, message: str) -> None:
        """Mark the strategy as failed permanently (NaN, say); the others continue."""
        self._write_waiting()
        self._end(status="failed", message=message)

    def _end(self, **facts: Any) -> None:
        wall_s = self._facts.get("wall_s", 0.0) + time.monotonic() - self._started_s
        rows = {name: table.rows for name, table in self._tables.items()}
        self._manifest.update_strategy(
            self.label,
            rounds_done=rows["rounds"],
            rows=rows,
            wall_s=round(wall_s, 3),
            digests=self._digests(),
            digests_so_far=None,
            **facts,
        )

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: object
    ) -> None:
        if not self.finished and not isinstance(value, StorageError):
            self._write_waiting()
            self._end(status="stopped")


_TO_TABLE: dict[str, Callable[[Any], pa.Table]] = {
    "rounds": rounds_table,
    "clients": clients_table,
    "similarity": similarity_table,
}
