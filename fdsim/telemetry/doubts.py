"""What in a run folder is not as the run left it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fdsim.errors import FdsimError, RunFolderError
from fdsim.files import file_hash, hash_of, seal_of
from fdsim.telemetry.checkpoint import promised_tables
from fdsim.telemetry.lock import writer_of
from fdsim.telemetry.manifest import Manifest, checksum_of, find_run_folders, simulation_hash
from fdsim.telemetry.models import FOLDER as MODELS
from fdsim.telemetry.parts import digests, seals_of
from fdsim.telemetry.scenario_keys import read_tables
from fdsim.telemetry.strategy_log import partition

#: In the order in which a checkpoint names them.
_TABLES_OF_A_STRATEGY = ("rounds", "clients", "similarity")


def doubts_about(folder: Path) -> Iterator[str]:
    """Yield what is not as the run left it, as far as it shows without running it again; see `Run.doubts`."""
    facts = Manifest.read(folder).as_dict()
    try:
        tables = read_tables(folder)
    except RunFolderError as error:
        yield f"scenario.toml: {error.problem}"
        return
    if facts.get("checksum") not in (None, checksum_of(facts)):
        yield "run.json is not as the run left it"
    if hash_of(tables) != facts["scenario_hash"]:
        yield "scenario.toml is not the scenario that the run used"
    for key in ("name", "seed", "rounds"):
        if tables.get(key) != facts[key]:
            yield f"run.json has {key} {facts[key]!r}, scenario.toml {tables.get(key)!r}"
    if _trace_doubtful(folder / "trace.parquet", facts):
        yield "trace.parquet is not the trace that the run used"
    # Where results are kept elsewhere, the event log is there too, with models and checkpoints.
    whole = any((folder / name).is_dir() for name in (MODELS, "checkpoints"))
    if facts.get("events_hash") and whole and not (folder / "events.parquet").is_file():
        yield "events.parquet is missing"
    for label in facts["strategies"]:
        for table in _TABLES_OF_A_STRATEGY:
            if _table_doubtful(folder, table, label, facts):
                yield f"{table}/{partition(label)} is not as the run left it"


@contextmanager
def blaming_edits(folder: Path | str) -> Iterator[None]:
    """Take an unforeseen error for what it most likely is where a run was edited: tables that contradict each other."""
    try:
        yield
    except FdsimError:
        raise
    except Exception as error:
        doubts = [doubt for run in find_run_folders(folder) for doubt in doubts_about(run)]
        if not doubts:
            raise
        raise RunFolderError(
            str(folder),
            f"its files contradict each other ({type(error).__name__}: {error}); {doubts[0]}",
            "restore them from a copy",
        ) from error


def _trace_doubtful(trace: Path, facts: dict[str, Any]) -> bool:
    if facts.get("trace_hash") is None:
        return False
    if not trace.is_file():
        return True
    # The seal is read at once; whether the bytes are those that it stands for is checked when they are read.
    known = facts.get("trace_seal")
    return bool(seal_of(trace) != known if known else file_hash(trace) != facts["trace_hash"])


def _table_doubtful(folder: Path, table: str, label: str, facts: dict[str, Any]) -> bool:
    """Whether the parts of a table are others than the manifest and the last checkpoint say."""
    if not (folder / table).is_dir():
        return False  # kept elsewhere, or lost; whoever reads it is told
    about = facts["strategies"][label]
    known = (about.get("digests") or {}).get(table)
    place = _TABLES_OF_A_STRATEGY.index(table)
    promised = promised_tables(folder / "checkpoints" / partition(label))[place : place + 1]
    found = digests(simulation_hash(facts), seals_of(folder / table / partition(label)))
    if known is not None:
        doubtful = found[-1] != known
    else:
        # After the checkpoint more parts may have been written, and one since the manifest last spoke of them.
        so_far = (about.get("digests_so_far") or {}).get(table)
        doubtful = (bool(promised) and not any(each.startswith(promised[0]) for each in found)) or (
            so_far is not None and so_far not in found[-2:]
        )
    # A run that goes on changes its tables while they are looked at.
    unchanged = doubtful and Manifest.read(folder).as_dict()["strategies"].get(label) == about
    return unchanged and writer_of(folder) is None
