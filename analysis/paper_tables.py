"""Write the tables of the paper's experiments, final accuracy and rounds to a target, as CSV and Markdown.

python analysis/paper_tables.py STUDY_OR_RUNS_DIR --out analysis/results
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd
from paper_runs import VARIANT, finals, gather, measured, rounds_to_target

#: The paper's strategies first, in its order.
ORDER = ["full", "fdms", "fdms_memory", "fdms, case 1", "fdms, case 2", "dropout", "stale", "stale, model"]


def final_table(curves: pd.DataFrame) -> pd.DataFrame:
    """Return the mean and standard deviation of the final accuracy over the seeds, and the gap to Full."""
    ends = finals(curves)
    full = ends[ends["strategy"] == "full"].set_index([*VARIANT, "seed"])["final"].rename("full")
    ends = ends.join(full, on=[*VARIANT, "seed"])
    ends["gap_to_full"] = ends["full"] - ends["final"]
    table = (
        ends.groupby([*VARIANT, "rounds_planned", "strategy"], dropna=False)
        .agg(seeds=("seed", "nunique"), final_mean=("final", "mean"), final_sd=("final", "std"))
        .join(ends.groupby([*VARIANT, "rounds_planned", "strategy"], dropna=False)["gap_to_full"].mean())
    )
    return _ordered(table.reset_index())


def rounds_table(curves: pd.DataFrame) -> pd.DataFrame:
    """Return the mean and standard deviation over the seeds that reached the target, and their number."""
    every = rounds_to_target(curves)
    groups = every.groupby([*VARIANT, "strategy", "target"], dropna=False)["rounds_to"]
    table = groups.agg(seeds="size", reached="count", rounds_mean="mean", rounds_sd="std")
    return _ordered(table.reset_index())


def _ordered(table: pd.DataFrame) -> pd.DataFrame:
    rank = {name: place for place, name in enumerate(ORDER)}
    table["rank"] = table["strategy"].map(lambda name: rank.get(name, len(ORDER)))
    return table.sort_values([*VARIANT, "rank", "strategy"]).drop(columns="rank").reset_index(drop=True)


def markdown(table: pd.DataFrame, numbers: dict[str, str]) -> str:
    """Format a Markdown table; `numbers` gives the format of each numeric column."""
    shown = table.copy()
    for column, form in numbers.items():
        shown[column] = [("–" if pd.isna(value) else format(value, form)) for value in shown[column]]
    rows = [list(shown.columns), ["---"] * len(shown.columns), *shown.astype(str).to_numpy().tolist()]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def main() -> None:
    """Read the folder and write both tables, and the curves behind them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--also", type=Path, help="a curves.csv with further runs, such as the one in analysis/results"
    )
    words = parser.parse_args()
    found = gather(words.folder, words.also)
    for path in found.unfinished:
        print(f"not finished, only its finished strategies count: {path}")
    words.out.mkdir(parents=True, exist_ok=True)
    places = {"final_mean": ".3f", "final_sd": ".3f", "gap_to_full": ".3f"}
    tables = (("final", final_table(found.curves), places),)
    tables += (
        (
            "rounds_to",
            rounds_table(found.curves),
            {"target": ".3f", "rounds_mean": ".0f", "rounds_sd": ".0f"},
        ),
    )
    curves = measured(found.curves)[[*VARIANT, "strategy", "seed", "round", "accuracy"]]
    curves.to_csv(words.out / "curves.csv", index=False, float_format="%.4f")
    for name, table, numbers in tables:
        table.to_csv(words.out / f"{name}.csv", index=False, float_format="%.5g")
        (words.out / f"{name}.md").write_text(markdown(table, numbers), encoding="utf-8")
        print(words.out / f"{name}.csv")


if __name__ == "__main__":
    main()
