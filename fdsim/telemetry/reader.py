"""A run on disk, as its readers see it: pandas tables, read on access."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fdsim.errors import RunFolderError, RunFolderWarning
from fdsim.telemetry.doubts import doubts_about
from fdsim.telemetry.lock import writer_of
from fdsim.telemetry.manifest import Manifest
from fdsim.telemetry.models import FOLDER as MODELS
from fdsim.telemetry.models import load_model, model_name
from fdsim.telemetry.scenario_keys import as_target, flat, read_tables
from fdsim.telemetry.schema import TABLES
from fdsim.telemetry.strategy_log import partition
from fdsim.telemetry.table_reader import Rounds, count_rows, read_file, read_parts, to_pandas, with_strategy

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go
    import torch

    from fdsim.scenario import Scenario


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
        return list(doubts_about(self.path))

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
        return {label: count_rows(self.path, "rounds", label) for label in self.strategies}

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
            return to_pandas(read_file(self.path, table, columns, rounds), table)
        if table not in TABLES:
            raise RunFolderError(
                str(self.path), f"no table called '{table}'", f"there is: trace, {', '.join(TABLES)}"
            )
        labels = self._labels(strategy)
        found = [(label, read_parts(self.path, table, label, columns, rounds)) for label in labels]
        return with_strategy(found, self.strategies, table)

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


def open_run(path: Path | str) -> Run:
    """Open a run folder for reading, finished or not; warn if it is not as the run left it.

    fdsim.open_run("runs/quickstart").summary()
    """
    run = Run(path)
    for doubt in run.doubts():
        warnings.warn(f"{run.path}: {doubt}. `fdsim verify` says more", RunFolderWarning, stacklevel=2)
    return run
