"""Draws one picture per gallery scenario: what was learned, and who was missing meanwhile.

for each scenario:  fdsim run scenarios/NAME.toml --out runs/gallery/NAME
then:               python analysis/gallery.py runs/gallery --out scenarios/pictures
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from paper_figures import draw_curves

import fdsim
from fdsim.telemetry.reader import Run

COLOURS = {
    "offline": "#4e79a7",
    "link_lost": "#a0cbe8",
    "metered": "#76b7b2",
    "in_use": "#f28e2b",
    "unplugged": "#ffbe7d",
    "battery_low": "#e15759",
    "battery_empty": "#7b1e1e",
    "deadline": "#b07aa1",
    "outage": "#333333",
    "crashed": "#9c755f",
    "scripted": "#999999",
}


def draw_missing(axes: Axes, trace: pd.DataFrame) -> None:
    """Stacked shares of the asked clients that each cause took, by round."""
    asked = trace[trace["outcome"] != "not_selected"]
    missing = asked[asked["outcome"] == "dropped"]
    size = asked.groupby("round").size()
    counts = pd.crosstab(missing["round"], missing["cause"].astype(str)).reindex(size.index, fill_value=0)
    shares = counts.div(size, axis=0)
    causes = [
        cause for cause in shares.mean().sort_values(ascending=False).index if shares[cause].mean() > 0.001
    ]
    axes.stackplot(
        shares.index + 1,
        [shares[cause] for cause in causes],
        labels=[cause.replace("_", " ") for cause in causes],
        colors=[COLOURS.get(cause, "#bab0ac") for cause in causes],
        step="mid",
        linewidth=0,
    )
    axes.set(xlabel="round", ylabel="share of asked clients missing", ylim=(0, 1), xlim=(1, len(size)))
    axes.spines[["top", "right"]].set_visible(False)
    if causes:
        axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))


def draw(run: Run, title: str) -> plt.Figure:
    """The two panels of one scenario."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
    rounds = run.read("rounds", columns=["strategy", "round", "test_accuracy"])
    curves = rounds.assign(strategy=rounds["strategy"].astype(str), round=rounds["round"] + 1)
    draw_curves(left, curves.rename(columns={"test_accuracy": "accuracy"}))
    left.set(xlabel="round", ylabel="test accuracy")
    left.legend(frameon=False, fontsize=7, loc="lower right")
    draw_missing(right, run.trace)
    figure.suptitle(title, fontsize=10)
    return figure


def main() -> None:
    """Draw every run folder in the given folder."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    words = parser.parse_args()
    words.out.mkdir(parents=True, exist_ok=True)
    found = sorted(path.parent for path in words.folder.glob("*/run.json"))
    if not found:
        raise SystemExit(f"{words.folder}: no run folders in it")
    scenarios = Path(__file__).resolve().parent.parent / "scenarios"
    for path in found:
        scenario = scenarios / f"{path.name}.toml"
        if not scenario.is_file():
            print(f"{path}: there is no scenario of that name, left out")
            continue
        question = scenario.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        figure = draw(fdsim.open_run(path), question)
        figure.savefig(words.out / f"{path.name}.png", dpi=100)
        plt.close(figure)
        print(words.out / f"{path.name}.png")


if __name__ == "__main__":
    main()
