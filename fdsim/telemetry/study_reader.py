"""Many runs as one: the same tables, with the seed and the swept settings as columns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fdsim.errors import RunFolderError
from fdsim.telemetry.manifest import find_run_folders
from fdsim.telemetry.reader import Run, open_run
from fdsim.telemetry.table_reader import Rounds

if TYPE_CHECKING:
    import pandas as pd

#: Settings that differ from run to run without being swept.
_NOT_SWEPT = ("name", "seed")


class Study:
    """Several runs; every table has the columns run, seed and one per setting in which the runs differ."""

    def __init__(
        self,
        runs: Sequence[Run],
        root: Path | None = None,
        recorded: Mapping[Path, dict[str, Any]] | None = None,
    ) -> None:
        self.runs, self._root = list(runs), root
        #: What distinguishes each run according to study.json; without one the scenarios are compared.
        self._recorded = recorded or {}

    def __repr__(self) -> str:
        swept = ", ".join(self.swept) or "nothing but the seed"
        return f"<fdsim study of {len(self.runs)} runs, swept: {swept}>"

    @cached_property
    def swept(self) -> list[str]:
        """The dotted keys in which the scenarios of the runs differ."""
        if self._recorded:
            return list(dict.fromkeys(key for settings in self._recorded.values() for key in settings))
        keys = dict.fromkeys(key for run in self.runs for key in run.settings)
        return [key for key in keys if key not in _NOT_SWEPT and self._differs(key)]

    def _differs(self, key: str) -> bool:
        first = self.runs[0].settings.get(key)
        return any(run.settings.get(key) != first for run in self.runs[1:])

    def _name(self, run: Run) -> str:
        return str(run.path.relative_to(self._root) if self._root else run.path)

    def _place(self, run: Run) -> dict[str, Any]:
        """Return the columns that distinguish a run from the others."""
        recorded = self._recorded.get(run.path, {})
        swept = {key: _plain(recorded.get(key, run.settings.get(key))) for key in self.swept}
        return {"run": self._name(run), "seed": run.manifest["seed"], **swept}

    @property
    def manifest(self) -> pd.DataFrame:
        """One row per run: what distinguishes it from the others, its status and its wall time."""
        import pandas as pd

        rows = []
        for run in self.runs:
            facts = run.manifest
            kept = {
                key: facts.get(key)
                for key in ("accelerator", "scenario_hash", "trace_hash", "started_at", "wall_s")
            }
            rows.append({**self._place(run), "status": run.status, **kept})
        return pd.DataFrame(rows)

    @property
    def rounds(self) -> pd.DataFrame:
        """One row per run, strategy and round."""
        return self.read("rounds")

    @property
    def clients(self) -> pd.DataFrame:
        """One row per run, strategy, round and client."""
        return self.read("clients")

    @property
    def trace(self) -> pd.DataFrame:
        """One row per run, round and client."""
        return self.read("trace")

    def read(
        self,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        rounds: Rounds | None = None,
        strategy: str | Sequence[str] | None = None,
    ) -> pd.DataFrame:
        """Read part of a table of all runs, as `Run.read` does; runs without the strategy give nothing."""
        frames = []
        for run in self.runs:
            wanted = _in_run(run, strategy)
            if wanted != []:
                frames.append(
                    (self._place(run), run.read(table, columns=columns, rounds=rounds, strategy=wanted))
                )
        if not frames:
            raise RunFolderError(str(self._root or "study"), f"no run has a strategy called {strategy!r}")
        return _stacked(frames)


def _in_run(run: Run, strategy: str | Sequence[str] | None) -> list[str] | None:
    if strategy is None:
        return None
    wanted = [strategy] if isinstance(strategy, str) else strategy
    return [label for label in wanted if label in run.strategies]


def _plain(value: Any) -> Any:
    """Return lists and tables among the swept settings as text, so that pandas can group by them."""
    return str(value) if isinstance(value, list | dict) else value


def _stacked(frames: list[tuple[dict[str, Any], pd.DataFrame]]) -> pd.DataFrame:
    """Concatenate the runs' tables, with the columns that distinguish the runs in front."""
    import numpy as np
    import pandas as pd
    from pandas.api.types import is_numeric_dtype, union_categoricals

    tables = [frame for _, frame in frames]
    categorical = [
        name for name in tables[0].columns if isinstance(tables[0][name].dtype, pd.CategoricalDtype)
    ]
    joined = pd.concat([table.drop(columns=categorical) for table in tables], ignore_index=True)
    for name in categorical:
        values = pd.Series(union_categoricals([table[name] for table in tables]))
        joined.insert(tables[0].columns.get_loc(name), name, values)  # type: ignore[arg-type]
    repeats = [len(table) for table in tables]
    for at, key in enumerate(frames[0][0]):
        cells = np.empty(len(frames), dtype=object)
        cells[:] = [place[key] for place, _ in frames]
        column = pd.Series(np.repeat(cells, repeats)).infer_objects()
        joined.insert(at, key, column if is_numeric_dtype(column) else column.astype("category"))
    return joined


def open_study(path: Path | str | Sequence[Path | str]) -> Study:
    """Open all runs in a folder and below it, or the run folders named, for reading as one.

        fdsim.open_study("studies/quickstart").rounds.groupby(["strategy", "seed"])["test_accuracy"].last()

    Of a study that goes on there is what was done so far.
    """
    if not isinstance(path, str | Path):
        return Study([open_run(each) for each in path])
    root = Path(path)
    if not root.is_dir():
        raise RunFolderError(str(root), "there is no such folder", "`fdsim study FILE` makes one")
    recorded = _recorded_in(root)
    runs = [open_run(path) for path in (recorded or find_run_folders(root))]
    if not runs:
        raise RunFolderError(str(root), "there is no run in it", "`fdsim study FILE` makes some")
    return Study(runs, root, recorded)


def _recorded_in(root: Path) -> dict[Path, dict[str, Any]]:
    """Read from study.json which trials a study has now: case and swept settings of each that has begun."""
    path = root / "study.json"
    if not path.is_file():
        return {}
    try:
        trials = json.loads(path.read_text(encoding="utf-8"))["trials"]
        places = {root / trial["folder"]: (trial.get("case"), trial["settings"]) for trial in trials}
    except (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError) as error:
        raise RunFolderError(
            str(path), f"the file is damaged ({error!r})", "run the study again; its trials are kept"
        ) from None
    return {
        place: {**({} if case is None else {"case": case}), **settings}
        for place, (case, settings) in places.items()
        if (place / "run.json").is_file()
    }
