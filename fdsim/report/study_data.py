"""The data of a study's report: its trials, grouped into cases of several seeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fdsim.errors import RunFolderError
from fdsim.report.colours import strategy_looks
from fdsim.report.curves import PlottedCurve
from fdsim.report.data import RunData, gather, scenario_tables, strategy_kinds
from fdsim.studies.folder import read_study

if TYPE_CHECKING:
    import pandas as pd

    from fdsim.comparison.compare import Comparison


@dataclass(frozen=True)
class StudyData:
    """A study, ready to be drawn."""

    folder: Path
    about: Mapping[str, Any]
    """study.json."""
    curves: list[PlottedCurve]
    """One per case and strategy, with one rounds table per seed."""
    comparison: Comparison
    example: RunData
    """The run whose devices and friends are shown."""
    example_case: str

    @property
    def name(self) -> str:
        """The study's name."""
        return str(self.about.get("name", self.folder.name))

    @property
    def trials(self) -> list[dict[str, Any]]:
        """What study.json records of each trial."""
        return list(self.about["trials"])

    @property
    def looks(self) -> dict[str, tuple[str, str]]:
        """strategy → (colour token, dash)."""
        return {curve.strategy: curve.look for curve in self.curves}

    @property
    def rounds(self) -> int:
        """The longest curve, in rounds."""
        return max(len(table) for curve in self.curves for table in curve.seeds)


def case_name(settings: Mapping[str, Any], case: object = None) -> str:
    """Name a trial's case by what was swept; a key is shortened to its last part where that is unique."""
    lasts = [key.rsplit(".", 1)[-1] for key in settings]
    parts = [] if case is None else [str(case)]
    for (key, value), last in zip(settings.items(), lasts, strict=True):
        parts.append(f"{last if lasts.count(last) == 1 else key} = {value}")
    return ", ".join(parts)


def gather_study(folder: Path) -> StudyData:
    """Open a study folder, finished or not, and read what every section needs."""
    import fdsim
    from fdsim.comparison.compare import compare
    from fdsim.comparison.curves import curves_of

    about = read_study(folder)
    tables: dict[tuple[str, str], list[pd.DataFrame]] = {}
    kinds: dict[str, str] = {}
    examples: list[tuple[str, Path]] = []
    for trial in about["trials"]:
        place = folder / trial["folder"]
        if not (place / "run.json").is_file():
            continue
        run = fdsim.open_run(place)
        rounds = run.rounds
        case = case_name(trial["settings"], trial.get("case"))
        for label in run.strategies:
            rows = rounds[rounds["strategy"] == label].sort_values("round")
            if len(rows):
                tables.setdefault((case, label), []).append(rows)
        if len(rounds):
            found = strategy_kinds(scenario_tables(place), run.strategies)
            kinds |= dict(zip(run.strategies, found, strict=True))
            examples.append((case, place))
    if not tables:
        raise RunFolderError(
            str(folder),
            "no trial of the study has finished a round yet",
            "try again once the study has progressed",
        )
    looks = strategy_looks(list(kinds), list(kinds.values()))
    case, place = examples[0]
    return StudyData(
        folder=folder,
        about=about,
        curves=[PlottedCurve(label, rows, looks[label], case) for (case, label), rows in tables.items()],
        comparison=compare(curves_of([folder])),
        example=gather(place),
        example_case=case,
    )
