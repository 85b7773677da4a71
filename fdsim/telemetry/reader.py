"""A run on disk, as its readers see it: pandas tables, read on access."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fdsim.errors import FdsimError, RunFolderError, RunFolderWarning, TraceError
from fdsim.files import file_hash, hash_of, seal_of
from fdsim.telemetry.checkpoint import promised_tables
from fdsim.telemetry.lock import writer_of
from fdsim.telemetry.manifest import Manifest, checksum_of, simulation_hash
from fdsim.telemetry.models import FOLDER as MODELS
from fdsim.telemetry.models import load_model, model_name
from fdsim.telemetry.parts import Part, digests, part_paths, seals_of
from fdsim.telemetry.scenario_keys import as_target, flat, read_tables
from fdsim.telemetry.schema import SCHEMA_VERSION, TABLES, WORDS, Column, arrow_schema
from fdsim.telemetry.strategy_log import partition
from fdsim.telemetry.upgrade import conformed, upgraded, version_of

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go
    import torch

    from fdsim.scenario import Scenario

Rounds = tuple[int | None, int | None]
#: In the order in which a checkpoint names them.
_TABLES_OF_A_STRATEGY = ("rounds", "clients", "similarity")


class Run:
    """One run; every access reads the table again, so a running run shows its latest rows.

    run = fdsim.open_run("runs/quickstart")
    run.rounds[["strategy", "round", "test_accuracy"]]
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        Manifest.read(self.path)

    def doubts(self) -> list[str]:
        """Say what in the folder is not as the run left it, as far as it shows without running it again.

        Scenario, seed and rounds against run.json; the seals of the trace and of each part against what was recorded
        when they were written. Whether bytes are those that a seal stands for is checked when they are read, and
        `fdsim verify` is the answer to all else.
        """
        return list(self._doubts())

    def _doubts(self) -> Iterator[str]:
        facts = self.manifest
        try:
            tables = self.tables
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
        if self._trace_doubtful(facts):
            yield "trace.parquet is not the trace that the run used"
        # Where results are kept elsewhere, the event log is there too, with models and checkpoints.
        whole = any((self.path / name).is_dir() for name in (MODELS, "checkpoints"))
        if facts.get("events_hash") and whole and not (self.path / "events.parquet").is_file():
            yield "events.parquet is missing"
        for label, about in facts["strategies"].items():
            for table in _TABLES_OF_A_STRATEGY:
                if self._table_doubtful(table, label, about, facts):
                    yield f"{table}/{partition(label)} is not as the run left it"

    def _trace_doubtful(self, facts: dict[str, Any]) -> bool:
        trace = self.path / "trace.parquet"
        if facts.get("trace_hash") is None:
            return False
        if not trace.is_file():
            return True
        # The seal is read at once; whether the bytes are those that it stands for is checked when they are read.
        known = facts.get("trace_seal")
        return bool(seal_of(trace) != known if known else file_hash(trace) != facts["trace_hash"])

    def _table_doubtful(self, table: str, label: str, about: dict[str, Any], facts: dict[str, Any]) -> bool:
        """Whether the parts of a table are others than the manifest, or else the last checkpoint, says."""
        if not (self.path / table).is_dir():
            return False  # kept elsewhere, or lost; whoever reads it is told
        known = (about.get("digests") or {}).get(table)
        place = _TABLES_OF_A_STRATEGY.index(table)
        promised = promised_tables(self.path / "checkpoints" / partition(label))[place : place + 1]
        found = digests(simulation_hash(facts), seals_of(self.path / table / partition(label)))
        if known is not None:
            doubtful = found[-1] != known
        else:
            # After the checkpoint more parts may have been written.
            doubtful = bool(promised) and not any(each.startswith(promised[0]) for each in found)
        # A run that goes on changes its tables while they are looked at.
        return doubtful and self.manifest["strategies"].get(label) == about and writer_of(self.path) is None

    def __repr__(self) -> str:
        return f"<fdsim run {self.path}: {self.status}>"

    def _repr_html_(self) -> str:
        """Show status and summary in a notebook."""
        from html import escape

        done = ", ".join(f"{label} {rounds}" for label, rounds in self.progress.items())
        head = f"<b>{escape(str(self.manifest['name']))}</b> in <code>{escape(str(self.path))}</code>: "
        head += f"{escape(self.status)}; rounds learned of {self.manifest['rounds']}: {escape(done)}"
        if not any(self.progress.values()) or not (self.path / "trace.parquet").is_file():
            return f"<p>{head}</p>"
        table = self.summary().dropna(axis="columns", how="all")
        # `Styler` would need another package; pandas escapes the labels here.
        return f"<p>{head}</p>" + table.to_html(float_format="{:.4g}".format, na_rep="–", border=0)

    @property
    def manifest(self) -> dict[str, Any]:
        """run.json: status, hashes, seed, versions, accelerator, wall times, progress of the strategies."""
        return Manifest.read(self.path).as_dict()

    @property
    def status(self) -> str:
        """running, complete, complete with failures, failed or interrupted, as is a run whose process has died."""
        status = str(self.manifest["status"])
        if status == "running" and writer_of(self.path) is None:
            return "interrupted"
        return status

    @cached_property
    def scenario(self) -> Scenario:
        """The fully resolved scenario; classes of your own that it names are shown as they are, never imported.

        `fdsim.load_scenario(run.path / "scenario.toml")` imports them.
        """
        from fdsim.catalogue import OwnCode
        from fdsim.scenario import load_scenario

        return load_scenario(self.path / "scenario.toml", code=OwnCode("leave"))

    @cached_property
    def tables(self) -> dict[str, Any]:
        """The fully resolved scenario as plain TOML tables, read without importing anything it names."""
        return read_tables(self.path)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The fully resolved scenario as dotted keys, read without importing anything it names."""
        return flat(self.tables)

    @property
    def strategies(self) -> list[str]:
        """The labels of the strategies, in the scenario's order."""
        return list(self.manifest["strategies"])

    @property
    def failed(self) -> dict[str, str]:
        """The strategies that failed, diverged say, each with the reason."""
        strategies = self.manifest["strategies"].items()
        return {k: facts.get("message") or "" for k, facts in strategies if facts.get("status") == "failed"}

    @property
    def progress(self) -> dict[str, int]:
        """The number of rounds of each strategy on disk."""
        return {
            label: sum(Part(path).rows for path in part_paths(self.path / "rounds" / partition(label)))
            for label in self.strategies
        }

    @property
    def rounds(self) -> pd.DataFrame:
        """One row per strategy and round."""
        return self.read("rounds")

    @property
    def clients(self) -> pd.DataFrame:
        """One row per strategy, round and client."""
        return self.read("clients")

    @property
    def trace(self) -> pd.DataFrame:
        """One row per round and client: who took part, and why not."""
        return self.read("trace")

    @property
    def events(self) -> pd.DataFrame:
        """The fleet's event log, written with `[telemetry] events = true`."""
        return self.read("events")

    def similarity(self, round_index: int | None = None, strategy: str | None = None) -> pd.DataFrame:
        """Return R and N in long form after a round; by default the last snapshot."""
        frame = self.read("similarity", strategy=strategy)
        if round_index is None:
            return frame[frame["round"] == frame.groupby("strategy", observed=True)["round"].transform("max")]
        chosen = frame[frame["round"] == round_index]
        if chosen.empty and not frame.empty:
            there = ", ".join(str(r) for r in sorted(frame["round"].unique()))
            raise RunFolderError(
                str(self.path), f"no snapshot after round {round_index}", f"there are: {there}"
            )
        return chosen

    def summary(self) -> pd.DataFrame:
        """Return one row per strategy: final and best accuracy, rounds to the target, mean gap to Full, and so on.

        `.attrs` has the target accuracy, the fraction of dropouts and their causes.
        """
        from dataclasses import asdict

        import pandas as pd

        from fdsim.inspect.summary import summarise

        found = summarise(self.rounds, self.trace, as_target(self.tables.get("target_accuracy")))
        frame = pd.DataFrame([asdict(line) for line in found.strategies]).set_index("strategy")
        if "rounds_to_target" in frame:
            frame["rounds_to_target"] = frame["rounds_to_target"].astype("Int64")
        frame.attrs |= {
            "target_accuracy": found.target_accuracy,
            "dropout_frac": found.dropout_frac,
            "causes": dict(found.causes),
        }
        return frame

    def plot(self, what: str = "accuracy", *, theme: str = "light", **choices: Any) -> go.Figure:
        """Return a figure of the report as a plotly figure, which a notebook shows.

            run.plot("accuracy", x="hours")
            run.plot("similarity", strategy="fdms", round=30)
            run.plot("device", client=3)

        There is: accuracy, loss, dropout, dropout_by_hour, outcomes, fleet, gantt, device, completion, groups, friends,
        similarity, stand_ins, substitution, pairs. Keywords choose what the page's controls choose: x, y, view, sort,
        strategy, round (from 1, as in the report), client.
        """
        from fdsim.report.notebook import plot

        return plot(self.path, what, choices, theme=theme)

    def report(self, out: Path | str | None = None) -> Path:
        """Write the report, one HTML page, into the run folder or to `out`, and return its path."""
        from fdsim.report import write_report

        return write_report(self.path, out)

    def model(self, strategy: str | None = None, round_index: int | None = None) -> torch.nn.Module:
        """Return a strategy's global model, the final one unless a kept round is named; on the CPU, in eval mode.

            net = run.model("fdms")

        It is built from the scenario's net, for its data. Where one of these is a class of your own, that class is
        imported, from the current folder or an installed package, never from the run folder.
        """
        state = self.model_state(strategy, round_index)
        net = self._untrained()
        dtype = next((value.dtype for value in state.values() if value.is_floating_point()), None)
        net = net if dtype is None else net.to(dtype)
        net.load_state_dict(state)
        return net.eval()

    def _untrained(self) -> torch.nn.Module:
        """Build the net with any parameters; classes of the user's own are imported, those of net and data alone."""
        from fdsim.catalogue import build, own_kinds

        parts = {family: self.tables[family] for family in ("net", "data")}
        own = own_kinds(list(parts.values()))
        if not own:
            return self.scenario.net.build(self.scenario.data.input_shape, self.scenario.data.classes, seed=0)
        try:
            net: Any = build("net", parts["net"])
            data: Any = build("data", parts["data"])
            return net.build(data.input_shape, data.classes, seed=0)  # type: ignore[no-any-return]
        except (ValueError, ImportError) as error:
            problem = getattr(error, "problem", error)
            raise RunFolderError(
                str(self.path),
                f"the model needs {' and '.join(repr(kind) for kind in own)}, which cannot be used: {problem}",
                "work in the folder of its file, or install it; `model_state` gives the parameters without it",
            ) from error

    def model_state(
        self, strategy: str | None = None, round_index: int | None = None
    ) -> dict[str, torch.Tensor]:
        """Return a strategy's global model as a state dict, read without importing anything the run names."""
        if strategy is None and len(self.strategies) > 1:
            known = ", ".join(self.strategies)
            raise RunFolderError(str(self.path), "several strategies have learned", f"name one of: {known}")
        label = self._labels(strategy)[0]
        kept = self.manifest["strategies"][label].get("models", {})
        name = model_name(round_index)
        if name not in kept:
            there = ", ".join(sorted(kept)) or "none yet"
            what = "no final model" if round_index is None else f"no model after round {round_index}"
            remedy = f"kept: {there}. `keep_models_every` under [telemetry] keeps more"
            raise RunFolderError(str(self.path), f"{what} of '{label}'", remedy)
        return load_model(self.path / MODELS / partition(label) / name, kept[name])

    def read(
        self,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        rounds: Rounds | None = None,
        strategy: str | Sequence[str] | None = None,
    ) -> pd.DataFrame:
        """Read part of a table: some columns, rounds a to b (b included, None is open), some strategies."""
        if table in ("trace", "events"):
            if strategy is not None:
                raise RunFolderError(str(self.path), f"the table {table} does not depend on the strategy")
            return _to_pandas(self._read_file(table, columns, rounds), table)
        if table not in TABLES:
            raise RunFolderError(
                str(self.path), f"no table called '{table}'", f"there is: trace, {', '.join(TABLES)}"
            )
        labels = self._labels(strategy)
        found = [(label, self._read_until_stable(table, label, columns, rounds)) for label in labels]
        return _with_strategy(found, self.strategies, table)

    def _labels(self, strategy: str | Sequence[str] | None) -> list[str]:
        if strategy is None:
            return self.strategies
        labels = [strategy] if isinstance(strategy, str) else list(strategy)
        for label in labels:
            if label not in self.strategies:
                raise RunFolderError(
                    str(self.path), f"no strategy called '{label}'", f"there is: {', '.join(self.strategies)}"
                )
        return labels

    def _read_until_stable(
        self, name: str, label: str, columns: Sequence[str] | None, rounds: Rounds | None
    ) -> pa.Table:
        """Read a table, again if its parts were merged between listing and opening them."""
        folder = self.path / name / partition(label)
        while True:
            before = part_paths(folder)
            try:
                return self._read_parts(name, label, columns, rounds)
            except RunFolderError:
                if part_paths(folder) == before:
                    raise

    def _read_parts(
        self, name: str, label: str, columns: Sequence[str] | None, rounds: Rounds | None
    ) -> pa.Table:
        wanted, where = _wanted(TABLES[name], columns, self.path), _where(rounds)
        folder = self.path / name / partition(label)
        tables, rows = [arrow_schema(TABLES[name]).empty_table().select(wanted)], 0
        for path in part_paths(folder):
            part = Part(path)
            rows += part.rows
            if version_of(part.schema, path) == SCHEMA_VERSION:
                there = [column for column in wanted if column in part.schema.names]
                tables.append(conformed(name, part.read(there, where), wanted, path))
            else:
                table = upgraded(name, part.read(), path)
                tables.append((table if where is None else table.filter(where)).select(wanted))
        self._refuse_gaps(name, label, rows, folder)
        return pa.concat_tables(tables)

    def _refuse_gaps(self, name: str, label: str, rows: int, folder: Path) -> None:
        facts = self.manifest["strategies"][label]
        expected = facts.get("rows", {}).get(name)
        if facts.get("status") == "complete" and expected is not None and rows != expected:
            raise RunFolderError(
                str(folder),
                f"{rows} rows were found, {expected} were written: a part is missing",
                "restore it from a copy",
            )

    def _read_file(self, name: str, columns: Sequence[str] | None, rounds: Rounds | None) -> pa.Table:
        path = self.path / f"{name}.parquet"
        if not path.is_file():
            why = (
                "the fleet is still being simulated, or the file was removed"
                if name == "trace"
                else "no event log was written"
            )
            raise RunFolderError(str(path), f"there is no such file: {why}", _FILE_REMEDY[name])
        known = self.manifest.get(f"{name}_hash")
        if known is not None and file_hash(path) != known:
            raise RunFolderError(str(path), "the file is damaged: its bytes are not those that were written")
        try:
            schema = pq.read_schema(path)
            if name == "events":
                version_of(schema, path)
            filters = _where(rounds) if name == "trace" else None
            return pq.read_table(
                path, columns=list(columns) if columns is not None else None, filters=filters
            )
        except (pa.ArrowInvalid, OSError) as error:
            raise TraceError(str(path), f"not a readable Parquet file ({error})") from None


_FILE_REMEDY = {
    "trace": "continue the run with --resume",
    "events": "set `events = true` under [telemetry] and run again",
}


def _wanted(known: Sequence[Column], columns: Sequence[str] | None, path: Path) -> list[str]:
    names = [column.name for column in known]
    for column in columns or ():
        if column not in names and column != "strategy":
            raise RunFolderError(str(path), f"no column called '{column}'", "`fdsim list columns` shows them")
    return names if columns is None else [column for column in columns if column != "strategy"]


def _where(rounds: Rounds | None) -> pc.Expression | None:
    if rounds is None or rounds == (None, None):
        return None
    first, last = rounds
    chosen = pc.scalar(True)
    if first is not None:
        chosen = chosen & (pc.field("round") >= first)
    if last is not None:
        chosen = chosen & (pc.field("round") <= last)
    return chosen


def _to_pandas(table: pa.Table, name: str) -> pd.DataFrame:
    """Turn rows into pandas; integers that may be null become Int32, so that a client is never 3.0."""
    frame: pd.DataFrame = table.to_pandas()
    for column in TABLES.get(name, ()):
        if column.name not in table.column_names:
            continue
        # Files of older versions have nulls in columns that are never null today.
        if column.nullable or (pa.types.is_integer(column.type) and table[column.name].null_count):
            frame[column.name] = _nullable(table[column.name])
        if column.name in WORDS:
            # The same categories in every run, whichever of them occur.
            words = [member.name for member in WORDS[column.name]]
            frame[column.name] = frame[column.name].cat.set_categories(words)
    return frame


def _nullable(values: pa.ChunkedArray) -> pd.Series[Any]:
    import pandas as pd

    kinds = {pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype()}
    found: pd.Series[Any] = values.to_pandas(types_mapper=kinds.get)
    return found


def _with_strategy(found: list[tuple[str, pa.Table]], labels: list[str], name: str) -> pd.DataFrame:
    import numpy as np
    import pandas as pd

    frame = _to_pandas(pa.concat_tables([table for _, table in found]).unify_dictionaries(), name)
    codes = np.concatenate(
        [np.full(len(table), labels.index(label), dtype=np.int16) for label, table in found]
    )
    strategy = pd.Series(pd.Categorical.from_codes(codes, categories=pd.Index(labels)))
    frame.insert(0, "strategy", strategy)
    return frame


def open_run(path: Path | str) -> Run:
    """Open a run folder for reading, finished or not; warn if it is not as the run left it.

    fdsim.open_run("runs/quickstart").summary()
    """
    run = Run(path)
    for doubt in run.doubts():
        warnings.warn(f"{run.path}: {doubt}. `fdsim verify` says more", RunFolderWarning, stacklevel=2)
    return run


@contextmanager
def blaming_edits(path: Path | str) -> Iterator[None]:
    """Take an unforeseen error for what it most likely is where a run was edited: tables that contradict each other."""
    try:
        yield
    except FdsimError:
        raise
    except Exception as error:
        doubts = [doubt for run in map(Run, find_run_folders(path)) for doubt in run.doubts()]
        if not doubts:
            raise
        raise RunFolderError(
            str(path),
            f"its files contradict each other ({type(error).__name__}: {error}); {doubts[0]}",
            "restore them from a copy",
        ) from error


def find_run_folders(folder: Path | str) -> list[Path]:
    """Return the run folders in a folder and below it, sorted."""
    found = []
    for place, folders, files in os.walk(folder):
        if "run.json" in files:
            found.append(Path(place))
            folders.clear()
    return sorted(found)
