"""Collect learning curves from run and study folders, with the settings that tell them apart as columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fdsim.comparison.measures import Curve, curve_of
from fdsim.errors import RunFolderError
from fdsim.studies.folder import read_study
from fdsim.telemetry.scenario_keys import as_target

_ABOUT = ("strategy", "seed", "trace_hash", "target_accuracy", "folder", "failed")
#: Scenario keys that never distinguish groups: seeds are paired, strategies are the arms.
_NOT_SETTINGS = ("name", "seed", "strategies", "target_accuracy", "telemetry", "acceleration")


@dataclass(frozen=True)
class Curves:
    """Learning curves: `about` has one row for each, `settings` names the columns that distinguish groups."""

    about: pd.DataFrame
    curves: tuple[Curve, ...]
    settings: tuple[str, ...]


@dataclass(frozen=True)
class _Source:
    """A run folder, and the settings its study records for it."""

    folder: Path
    settings: dict[str, Any]


def curves_of(folders: Sequence[Path | str]) -> Curves:
    """Read the curves of run folders and study folders."""
    sources = [source for folder in folders for source in _sources(Path(folder))]
    runs = [(source, *_read(source.folder)) for source in sources]
    if not runs:
        raise RunFolderError(", ".join(map(str, folders)), "no run has finished a round yet")
    alone = [tables for source, tables, *_ in runs if not source.settings]
    differing = _differing(alone) if len(alone) > 1 else ()
    settings = tuple(dict.fromkeys([*(key for source, *_ in runs for key in source.settings), *differing]))
    about: list[dict[str, Any]] = []
    curves: list[Curve] = []
    for source, tables, manifest, rounds in runs:
        target = as_target(tables.get("target_accuracy"))
        for strategy, facts in manifest["strategies"].items():
            rows, failed = rounds[rounds["strategy"] == strategy], facts.get("status") == "failed"
            if rows.empty and not failed:
                continue
            about.append(
                {
                    "strategy": str(strategy),
                    "seed": int(manifest["seed"]),
                    "trace_hash": manifest.get("trace_hash"),
                    "target_accuracy": target,
                    "folder": str(source.folder),
                    "failed": failed,
                    **{key: source.settings.get(key, tables.get(key)) for key in settings},
                }
            )
            curves.append(curve_of(rows, int(manifest["rounds"])))
    if not curves:
        raise RunFolderError(", ".join(map(str, folders)), "no run has finished a round yet")
    return Curves(pd.DataFrame(about, columns=[*_ABOUT, *settings]), tuple(curves), settings)


def curves_from(
    rounds: pd.DataFrame, *, settings: Sequence[str] = (), rounds_planned: int | None = None
) -> Curves:
    """Take curves from a rounds table with `strategy` and `seed` columns, for results from elsewhere."""
    missing = [
        name
        for name in ("strategy", "seed", "round", "test_accuracy", *settings)
        if name not in rounds.columns
    ]
    if missing:
        raise RunFolderError("rounds table", f"column '{missing[0]}' is missing")
    whole = rounds.assign(**{n: float("nan") for n in ("sim_time_s", "energy_j") if n not in rounds.columns})
    about: list[dict[str, Any]] = []
    curves: list[Curve] = []
    keys = ["strategy", "seed", *settings]
    for values, rows in whole.groupby(keys, sort=False, observed=True, dropna=False):
        first = dict(zip(keys, values, strict=True))
        trace = rows["trace_hash"].iloc[0] if "trace_hash" in rows.columns else None
        about.append(
            {**first, "trace_hash": trace, "target_accuracy": None, "folder": "rounds table", "failed": False}
        )
        curves.append(curve_of(rows, rounds_planned))
    return Curves(pd.DataFrame(about, columns=[*_ABOUT, *settings]), tuple(curves), tuple(settings))


def _sources(folder: Path) -> list[_Source]:
    if (folder / "study.json").is_file():
        found = []
        for trial in read_study(folder)["trials"]:
            case = {"case": trial["case"]} if trial.get("case") is not None else {}
            place = folder / trial["folder"]
            if (place / "run.json").is_file() and any((place / "rounds").glob("**/*.parquet")):
                found.append(_Source(place, {**case, **trial["settings"]}))
        return found
    if not (folder / "run.json").is_file():
        raise RunFolderError(
            str(folder), "neither a run nor a study: there is no run.json and no study.json in it"
        )
    return [_Source(folder, {})]


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, Any], pd.DataFrame]:
    from fdsim.telemetry.reader import open_run

    run = open_run(folder)
    return run.settings, dict(run.manifest), run.rounds


def _differing(scenarios: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """Return the keys in which runs without a study differ."""
    flats = [{k: v for k, v in s.items() if re.split(r"[.\[]", k)[0] not in _NOT_SETTINGS} for s in scenarios]
    keys = dict.fromkeys(key for flat in flats for key in flat)
    return tuple(key for key in keys if any(flat.get(key) != flats[0].get(key) for flat in flats))
