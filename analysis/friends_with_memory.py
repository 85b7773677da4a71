"""Measure friends with memory against its rivals on the shipped scenarios: paired gaps to Full over many seeds.

python analysis/friends_with_memory.py --out analysis/results --seeds 10

Each trial (a scenario and a seed) is a row per strategy in friends_with_memory.csv, written as soon as it is known;
started again, it goes on with the rows that are missing. Then friends_with_memory.md, the table, and .png, the picture, are made.
Half an hour on one core.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import spearmanr

import fdsim
from fdsim.comparison.statistics import paired_difference

SCENARIOS = Path(__file__).resolve().parent.parent / "scenarios"
OURS = "fdms_memory"
STRATEGIES = ["full", "fdms", "dropout", "stale", "fedvarp", OURS]
COLOURS = {
    "fdms": "#0072b2",
    "dropout": "#d55e00",
    "stale": "#009e73",
    "fedvarp": "#cc79a7",
    OURS: "#222222",
}
#: Trials by name: the scenario, and what is changed in it.
TRIALS: dict[str, tuple[str, list[str]]] = {
    name: (name, [])
    for name in (
        "quickstart",
        "night_chargers",
        "outage",
        "commuters",
        "sticky_dropouts",
        "battery_drain",
        "no_friend",
        "solar_sensors",
    )
} | {"Dirichlet, α = 0.1": ("quickstart", ['data.partition={kind="dirichlet",alpha=0.1}'])}
#: Errors are measured on the first seeds only: that trains the missing clients as well, and changes nothing else.
MEASURED_SEEDS = 2
SETTINGS = [
    "telemetry.evaluate_every=1",
    "telemetry.events=false",
    "telemetry.similarity_every=0",
]


def measure(
    trial: str, seed: int, strategies: list[str] = STRATEGIES, overrides: list[str] | None = None
) -> pd.DataFrame:
    """Run strategies on one trace; return a row for each: accuracies, and how its predicted errors did."""
    scenario, changes = TRIALS[trial]
    with tempfile.TemporaryDirectory() as folder:
        run = fdsim.run(
            SCENARIOS / f"{scenario}.toml",
            Path(folder) / "run",
            overrides=[
                "strategies=[" + ",".join(f'{{kind="{kind}"}}' for kind in strategies) + "]",
                *SETTINGS,
                *changes,
                f"seed={seed}",
                f"telemetry.counterfactual={'true' if seed <= MEASURED_SEEDS else 'false'}",
                *(overrides or []),
            ],
            progress=False,
        )
        rounds = run.read("rounds", columns=["strategy", "round", "test_accuracy"])
        clients = run.read("clients", columns=["strategy", "predicted_error", "substitution_error"])
    rows = []
    for strategy in strategies:
        accuracy = rounds[rounds["strategy"] == strategy].sort_values("round")["test_accuracy"].to_numpy()
        mine = clients[clients["strategy"] == strategy].dropna()
        told = len(mine) > 2
        rows.append(
            {
                "trial": trial,
                "seed": seed,
                "strategy": strategy,
                "mean_accuracy": accuracy.mean(),
                "worst_after_third": accuracy[len(accuracy) // 3 :].min(),
                "last_accuracy": accuracy[-1],
                "rank_correlation": spearmanr(mine["predicted_error"], mine["substitution_error"]).statistic
                if told
                else np.nan,
                "predicted_to_measured": (mine["predicted_error"] / mine["substitution_error"]).median()
                if told
                else np.nan,
            }
        )
    return pd.DataFrame(rows)


def measure_missing(path: Path, seeds: range) -> pd.DataFrame:
    """Measure what the CSV does not have yet, and return all of it."""
    known = set()
    if path.is_file():
        known = set(pd.read_csv(path)[["trial", "seed", "strategy"]].itertuples(index=False, name=None))
    for seed in seeds:
        for trial in TRIALS:
            missing = [name for name in STRATEGIES if (trial, seed, name) not in known]
            if missing:
                rows = measure(trial, seed, missing)
                rows.to_csv(path, mode="a", header=not path.is_file(), index=False, float_format="%.6g")
                print(f"{trial}, seed {seed}", flush=True)
    return pd.read_csv(path)


def gaps(measured: pd.DataFrame, column: str = "mean_accuracy") -> pd.DataFrame:
    """Return the gap to Full in points, a row per trial and seed, a column per strategy but Full."""
    wide = measured.pivot(index=["trial", "seed"], columns="strategy", values=column)
    return 100 * wide[["full"]].to_numpy() - 100 * wide[[name for name in STRATEGIES if name != "full"]]


def table(measured: pd.DataFrame) -> pd.DataFrame:
    """Return a row per trial: mean gaps, and the paired difference between ours and the best of the others."""
    every, worst = gaps(measured), gaps(measured, "worst_after_third")
    ours = measured[measured["strategy"] == OURS].groupby("trial")
    rows = []
    for trial in (name for name in TRIALS if name in every.index):
        mine = every.loc[trial]
        best = mine.drop(columns=OURS).mean().idxmin()
        saved = paired_difference(mine[best].to_numpy(), mine[OURS].to_numpy())
        low, high = saved.t_interval.low, saved.t_interval.high
        rows.append(
            {"scenario": trial, "seeds": len(mine)}
            | {name: f"{mine[name].mean():.2f}" for name in mine.columns}
            | {
                "best other": best,
                "smaller by (95 %)": f"{saved.mean:.2f} ({low:.2f} to {high:.2f})".replace("-", "−"),
                "verdict": "smaller" if low > 0 else "larger" if high < 0 else "level",
                "worst, below Full's": f"{worst.loc[trial][OURS].mean():.1f}".replace("-", "−"),
                "rank correlation": f"{ours['rank_correlation'].mean()[trial]:.2f}",
                "predicted/measured": f"{ours['predicted_to_measured'].mean()[trial]:.2f}",
            }
        )
    return pd.DataFrame(rows)


def markdown(shown: pd.DataFrame) -> str:
    """Format the table."""
    rows = [list(shown.columns), ["---"] * len(shown.columns), *shown.astype(str).to_numpy().tolist()]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def draw(measured: pd.DataFrame) -> Figure:
    """Draw every strategy's mean gap to Full by scenario, with its 95 % interval, and each seed as a dot."""
    every = gaps(measured)
    trials = [name for name in TRIALS if name in every.index]
    figure, axes = plt.subplots(3, 3, figsize=(10, 6.5), layout="constrained")
    for place, (panel, trial) in enumerate(zip(axes.flat, trials, strict=False)):
        mine = every.loc[trial]
        for x, (name, colour) in enumerate(COLOURS.items()):
            values = mine[name].to_numpy()
            about = paired_difference(values, np.zeros(len(values)))
            reach = [[about.mean - about.t_interval.low], [about.t_interval.high - about.mean]]
            panel.plot(np.full(len(values), x) + 0.18, values, ".", color=colour, alpha=0.35, markersize=4)
            panel.errorbar([x], [about.mean], yerr=reach, fmt="o", color=colour, capsize=3)
        panel.axhline(0.0, color="#999999", linewidth=0.8)
        panel.set_title(trial.replace("_", " "), fontsize=9)
        panel.set_xticks(range(len(COLOURS)), list(COLOURS) if place >= 6 else [], rotation=30, fontsize=8)
        # Some fall so far behind that the others could not be told apart.
        panel.set_yscale("symlog", linthresh=1.0)
        low, high = every.loc[trial].to_numpy().min(), every.loc[trial].to_numpy().max()
        panel.set_ylim(min(-0.1, 1.2 * low), max(1.5, 1.5 * high))
        panel.yaxis.set_major_formatter("{x:g}")
        panel.spines[["top", "right"]].set_visible(False)
    for panel in axes.flat[len(trials) :]:
        panel.set_visible(False)
    figure.supylabel(
        "gap to Full, points of accuracy, mean over all rounds (linear up to 1, then logarithmic)", fontsize=8
    )
    return figure


def main() -> None:
    """Measure what is missing, then write the table and the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=1, help="the first seed, to share the work")
    words = parser.parse_args()
    words.out.mkdir(parents=True, exist_ok=True)
    base = words.out / "friends_with_memory"
    measured = measure_missing(base.with_suffix(".csv"), range(words.first, words.seeds + 1))
    base.with_suffix(".md").write_text(markdown(table(measured)), encoding="utf-8")
    draw(measured).savefig(base.with_suffix(".png"), dpi=110)
    print(base.with_suffix(".md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
