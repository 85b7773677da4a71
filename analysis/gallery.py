"""Draw one picture per gallery scenario: accuracy, and dropout by cause.

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


def draw_dropouts(axes: Axes, trace: pd.DataFrame) -> None:
    """Draw the fraction of selected clients that dropped out by each cause, stacked, by round."""
    selected = trace[trace["outcome"] != "not_selected"]
    dropped = selected[selected["outcome"] == "dropped"]
    size = selected.groupby("round").size()
    counts = pd.crosstab(dropped["round"], dropped["cause"].astype(str)).reindex(size.index, fill_value=0)
    fractions = counts.div(size, axis=0)
    causes = [
        cause
        for cause in fractions.mean().sort_values(ascending=False).index
        if fractions[cause].mean() > 0.001
    ]
    axes.stackplot(
        fractions.index + 1,
        [fractions[cause] for cause in causes],
        labels=[cause.replace("_", " ") for cause in causes],
        colors=[COLOURS.get(cause, "#bab0ac") for cause in causes],
        step="mid",
        linewidth=0,
    )
    axes.set(xlabel="round", ylabel="fraction dropped out", ylim=(0, 1), xlim=(1, len(size)))
    axes.spines[["top", "right"]].set_visible(False)
    if causes:
        axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))


def draw(run: Run, title: str) -> plt.Figure:
    """Draw the two panels of one scenario."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
    rounds = run.read("rounds", columns=["strategy", "round", "test_accuracy"])
    curves = rounds.assign(strategy=rounds["strategy"].astype(str), round=rounds["round"] + 1)
    draw_curves(left, curves.rename(columns={"test_accuracy": "accuracy"}))
    left.set(xlabel="round", ylabel="test accuracy")
    left.legend(frameon=False, fontsize=7, loc="lower right")
    draw_dropouts(right, run.trace)
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
        raise SystemExit(f"{words.folder}: it contains no run folders")
    scenarios = Path(__file__).resolve().parent.parent / "scenarios"
    for path in found:
        scenario = scenarios / f"{path.name}.toml"
        if not scenario.is_file():
            print(f"{path}: skipped, there is no scenario of that name")
            continue
        question = scenario.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        figure = draw(fdsim.open_run(path), question)
        figure.savefig(words.out / f"{path.name}.png", dpi=100)
        plt.close(figure)
        print(words.out / f"{path.name}.png")


if __name__ == "__main__":
    main()
