"""Gather the runs of the paper's experiments into one table, from a study folder or any folder of runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fdsim.telemetry.manifest import find_run_folders
from fdsim.telemetry.reader import Run, open_run

#: The columns that tell the variants of the experiments apart.
VARIANT = ["experiment", "clients", "alpha", "local_work", "proximal_mu", "shards"]
#: Final accuracies are means over the evaluations in this last fraction of the rounds.
FINAL_FRAC = 0.2
#: Rounds are counted up to this fraction of Full's mean final accuracy.
TARGET_FRAC = 0.9


@dataclass(frozen=True)
class Gathered:
    """All runs of a folder: accuracies by round, and the runs themselves."""

    curves: pd.DataFrame
    """VARIANT, rounds_planned, seed, strategy, round (from 1), accuracy, pairs."""
    runs: list[Run]
    unfinished: list[Path]


def variant_of(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the values of VARIANT for a run's settings."""
    steps, epochs = settings.get("training.local_steps"), settings.get("training.local_epochs")
    return {
        "experiment": str(settings["name"]).removeprefix("paper-"),
        "clients": settings.get("participation.clients"),
        "alpha": settings.get("participation.alpha"),
        "local_work": f"{steps} steps" if steps else f"{epochs} epochs",
        "proximal_mu": float(settings.get("training.proximal_mu", 0.0)),
        "shards": int(settings.get("data.partition.partitions", 0)),
    }


def gather(folder: Path | str, also: Path | None = None) -> Gathered:
    """Read every finished strategy of every run below `folder`; `also` is a curves.csv with further ones."""
    frames, runs, unfinished = [], [], []
    for run in map(open_run, find_run_folders(folder)):
        runs.append(run)
        if run.status != "complete":
            unfinished.append(run.path)
        planned = int(run.settings["rounds"])
        rounds = run.read("rounds", columns=["strategy", "round", "test_accuracy", "pairs_computed"])
        for strategy, rows in rounds.groupby("strategy", observed=True):
            if len(rows) < planned:
                continue
            rows = rows.sort_values("round")
            frame = pd.DataFrame(
                {
                    "seed": int(run.settings["seed"]),
                    "strategy": str(strategy),
                    "round": rows["round"].to_numpy() + 1,
                    "accuracy": rows["test_accuracy"].to_numpy(),
                    "pairs": rows["pairs_computed"].to_numpy(),
                    "rounds_planned": planned,
                }
            )
            frames.append(frame.assign(**variant_of(run.settings)))
    if not frames:
        raise SystemExit(f"{folder}: it contains no run with a finished strategy")
    found = reuse_full(pd.concat(frames, ignore_index=True))
    if also is not None:
        found = reuse_full(pd.concat([found, _others(found, also)], ignore_index=True))
    return Gathered(found, runs, unfinished)


def _others(found: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return the curves of a file whose variant, seed and strategy are not among those found."""
    keys = [*VARIANT, "seed", "strategy"]
    told = pd.read_csv(path)
    told["rounds_planned"] = told.groupby(keys)["round"].transform("max")
    known = found[keys].drop_duplicates().assign(known=True)
    new = told.merge(known, on=keys, how="left")
    return new[new["known"].isna()].drop(columns="known").assign(pairs=float("nan"))


def reuse_full(curves: pd.DataFrame) -> pd.DataFrame:
    """Give every α the Full of its seed: no client is missing in Full, so it is the same at every α."""
    keys = [*VARIANT, "seed"]
    without_alpha = [key for key in keys if key != "alpha"]
    every = curves[keys].drop_duplicates()
    full = curves[curves["strategy"] == "full"]
    has = full[keys].drop_duplicates().assign(has=True)
    wanting = every.merge(has, on=keys, how="left")
    wanting = wanting[wanting["has"].isna()].drop(columns="has")
    donor = full.drop_duplicates([*without_alpha, "round"]).drop(columns="alpha")
    return pd.concat([curves, wanting.merge(donor, on=without_alpha)], ignore_index=True)


def measured(curves: pd.DataFrame) -> pd.DataFrame:
    """Return the rounds after which the global model was evaluated."""
    return curves.dropna(subset=["accuracy"])


def finals(curves: pd.DataFrame) -> pd.DataFrame:
    """Return one row per variant, seed and strategy: the mean accuracy over the last fifth of the rounds."""
    last = measured(curves)
    last = last[last["round"] > (1.0 - FINAL_FRAC) * last["rounds_planned"]]
    keys = [*VARIANT, "rounds_planned", "strategy", "seed"]
    return last.groupby(keys, dropna=False)["accuracy"].mean().rename("final").reset_index()


def rounds_to_target(curves: pd.DataFrame) -> pd.DataFrame:
    """Return one row per variant, seed and strategy: the first round at 90 % of Full's final accuracy, or NaN."""
    ends = finals(curves)
    target = ends[ends["strategy"] == "full"].groupby(VARIANT, dropna=False)["final"].mean() * TARGET_FRAC
    rows = measured(curves).merge(target.rename("target").reset_index(), on=VARIANT)
    keys = [*VARIANT, "strategy", "seed", "target"]
    reached = rows[rows["accuracy"] >= rows["target"]].groupby(keys, dropna=False)["round"].min()
    every = rows[keys].drop_duplicates()
    return every.merge(reached.rename("rounds_to").reset_index(), on=keys, how="left")
