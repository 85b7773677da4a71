"""Draw the figures of the paper and its supplement from a study folder or any folder of runs, as PDF and PNG.

python analysis/paper_figures.py STUDY_OR_RUNS_DIR --out analysis/results

clustered   accuracy by round for each fraction α of missing clients, a row per data set
released    the same, trained as the authors' released code does
local_work  the same for each E
clients     the same for K = 20 and 40
fedprox     the same with FedProx's proximal term
general     the same for each level of heterogeneity of the general setting
similarity  R of fdms at the end, clients in the order of their clusters
reduction   accuracy and pairs compared with candidate sets

Curves are means over the seeds; bands are one standard deviation. Figures without runs are skipped with a message.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from paper_runs import Gathered, gather, measured

from fdsim.trace import open_trace

STYLES: dict[str, dict[str, object]] = {
    "full": {"color": "#222222", "linestyle": "--"},
    "fdms": {"color": "#0072b2", "linewidth": 2.0},
    "fdms_memory": {"color": "#e69f00", "linewidth": 2.0},
    "fdms, case 1": {"color": "#56b4e9"},
    "fdms, case 2": {"color": "#cc79a7"},
    "dropout": {"color": "#d55e00"},
    "stale": {"color": "#009e73"},
    "stale, model": {"color": "#009e73", "linestyle": ":"},
}
DATA_SETS = {"mnist": "MNIST", "fmnist": "FashionMNIST", "cifar10": "CIFAR-10"}
TITLES = {f"{name}-{kind}": title for kind in ("clustered", "released") for name, title in DATA_SETS.items()}
LEVELS = {500: "low", 200: "medium", 100: "high"}


def draw_curves(axes: Axes, curves: pd.DataFrame, column: str = "accuracy") -> None:
    """Draw one line per strategy, mean over the seeds, with a band of one standard deviation."""
    for strategy in sorted(curves["strategy"].unique(), key=_rank):
        rows = curves[curves["strategy"] == strategy].dropna(subset=[column])
        by_round = rows.groupby("round")[column].agg(["mean", "std"])
        style = {"linewidth": 1.4, **STYLES.get(strategy, {})}
        (line,) = axes.plot(by_round.index, by_round["mean"], label=strategy, **style)  # type: ignore[arg-type]
        low, high = by_round["mean"] - by_round["std"], by_round["mean"] + by_round["std"]
        axes.fill_between(by_round.index, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _rank(strategy: str) -> tuple[int, str]:
    names = list(STYLES)
    return (names.index(strategy) if strategy in names else len(names), strategy)


def panels(curves: pd.DataFrame, rows: str, columns: str, label: Callable[[object], str]) -> Figure | None:
    """Draw a grid of panels, one row per value of `rows`, one column per value of `columns`."""
    if curves.empty:
        return None
    down, across = list(dict.fromkeys(curves[rows])), sorted(curves[columns].unique())
    figure, grid = plt.subplots(
        len(down),
        len(across),
        figsize=(3.5 * len(across) + 0.6, 2.7 * len(down) + 0.5),
        sharey="row",
        squeeze=False,
        layout="constrained",
    )
    for i, row in enumerate(down):
        for j, column in enumerate(across):
            axes = grid[i, j]
            chosen = curves[(curves[rows] == row) & (curves[columns] == column)]
            if chosen.empty:
                # The panel stays, so that its row keeps a scale.
                axes.text(0.5, 0.5, "not run", ha="center", color="grey", transform=axes.transAxes)
                axes.set(xticks=[])
                axes.spines[["top", "right"]].set_visible(False)
                continue
            draw_curves(axes, chosen)
            seeds = chosen.groupby("strategy")["seed"].nunique()
            told = f"{seeds.min()}" if seeds.min() == seeds.max() else f"{seeds.min()} to {seeds.max()}"
            name = TITLES.get(str(row), str(row))
            axes.set_title(
                f"{name}, {label(column)} ({told} seed{'s' if seeds.max() > 1 else ''})", fontsize=9
            )
            axes.set_xlabel("round")
        grid[i, 0].set_ylabel("test accuracy")
    lines, names = max(
        (axes.get_legend_handles_labels() for axes in grid.flat), key=lambda pair: len(pair[1])
    )
    figure.legend(lines, names, loc="outside lower center", ncols=len(names), frameon=False)
    return figure


def _plain(curves: pd.DataFrame, kind: str = "clustered") -> pd.DataFrame:
    """Return the runs of the clustered experiments with the paper's main settings."""
    main = curves["experiment"].str.endswith(f"-{kind}") & (curves["proximal_mu"] == 0)
    return curves[main & (curves["clients"] == 20) & ~curves["strategy"].str.startswith("fdms, case")]


def _main_work(curves: pd.DataFrame) -> pd.DataFrame:
    return curves[curves["local_work"].str.startswith("2 ")]


def draw_clustered(found: Gathered, kind: str = "clustered") -> Figure | None:
    """Draw accuracy by round for each α."""
    curves = _main_work(_plain(measured(found.curves), kind))
    order = {name: place for place, name in enumerate(TITLES)}
    curves = curves.sort_values("experiment", key=lambda names: names.map(order), kind="stable")
    return panels(curves, "experiment", "alpha", lambda alpha: f"α = {alpha}")


def draw_released(found: Gathered) -> Figure | None:
    """Draw the same for runs trained as in the authors' released code."""
    return draw_clustered(found, "released")


def draw_local_work(found: Gathered) -> Figure | None:
    """Draw accuracy by round for each E at α = 0.5, where more than one was run."""
    curves = _plain(measured(found.curves))
    curves = curves[curves["alpha"] == 0.5]
    several = curves.groupby("experiment")["local_work"].nunique()
    curves = curves[curves["experiment"].isin(several[several > 1].index)]
    return panels(curves, "experiment", "local_work", lambda work: f"E = {work}")


def draw_clients(found: Gathered) -> Figure | None:
    """Draw accuracy by round for K = 20 and 40 at α = 0.5."""
    curves = _main_work(measured(found.curves))
    curves = curves[curves["experiment"].str.endswith("-clustered") & (curves["alpha"] == 0.5)]
    several = curves.groupby("experiment")["clients"].nunique()
    curves = curves[curves["experiment"].isin(several[several > 1].index)]
    return panels(curves, "experiment", "clients", lambda clients: f"K = {clients}")


def draw_fedprox(found: Gathered) -> Figure | None:
    """Draw accuracy by round with and without the proximal term of FedProx."""
    curves = measured(found.curves)
    with_pull = set(curves.loc[curves["proximal_mu"] > 0, "experiment"])
    curves = curves[curves["experiment"].isin(with_pull) & (curves["alpha"] == 0.5)]
    return panels(_main_work(curves), "experiment", "proximal_mu", lambda mu: f"μ = {mu}")


def draw_general(found: Gathered) -> Figure | None:
    """Draw accuracy by round for each level of heterogeneity (columns) and α (rows) in the general setting."""
    curves = measured(found.curves)
    curves = curves[curves["shards"] > 0].sort_values(["shards", "alpha"], ascending=[False, True])
    curves = curves.assign(
        setting=[f"{e}, α = {a}" for e, a in zip(curves["experiment"], curves["alpha"], strict=True)]
    )
    return panels(
        curves, "setting", "shards", lambda shards: f"{LEVELS.get(int(str(shards)), shards)} unevenness"
    )


def draw_similarity(found: Gathered) -> Figure | None:
    """Draw R of fdms after the last round of the first run of each clustered experiment."""
    maps: dict[str, np.ndarray] = {}
    for run in found.runs:
        name = str(run.settings["name"]).removeprefix("paper-")
        if name in maps or "fdms" not in run.strategies or not name.endswith("-clustered"):
            continue
        snapshots = run.read("similarity", strategy="fdms")
        last = snapshots[snapshots["round"] == snapshots["round"].max()]
        if last.empty:
            continue
        clients = int(max(last["first"].max(), last["second"].max())) + 1
        matrix = np.full((clients, clients), np.nan)
        matrix[last["first"], last["second"]] = matrix[last["second"], last["first"]] = last["similarity"]
        truth = open_trace(run.path / "trace.parquet").true_cluster
        order = np.arange(clients) if truth is None else np.argsort(truth, kind="stable")
        maps[name] = matrix[np.ix_(order, order)]
    if not maps:
        return None
    figure, grid = plt.subplots(
        1, len(maps), figsize=(3.6 * len(maps) + 0.8, 3.5), squeeze=False, layout="constrained"
    )
    low = min(float(np.nanmin(matrix)) for matrix in maps.values())
    for axes, (name, matrix) in zip(grid[0], maps.items(), strict=True):
        shown = axes.imshow(matrix, cmap="viridis", vmin=low, vmax=1.0)
        axes.set_title(TITLES.get(name, name), fontsize=10)
        axes.set(xlabel="client, by true cluster", xticks=[], yticks=[])
    grid[0, 0].set_ylabel("client, by true cluster")
    figure.colorbar(shown, ax=list(grid[0]), label="mean similarity R")
    return figure


def draw_reduction(found: Gathered) -> Figure | None:
    """Draw accuracy, pairs compared per round, and all pairs compared so far, with and without candidate sets."""
    curves = found.curves[found.curves["alpha"] == 0.5]
    reduced = curves.loc[
        curves["strategy"].str.startswith("fdms, case"), ["experiment", "seed"]
    ].drop_duplicates()
    curves = curves.merge(reduced, on=["experiment", "seed"])
    if curves.empty:
        return None
    fdms = curves[curves["strategy"].str.startswith("fdms")].sort_values("round").copy()
    keys = ["experiment", "seed", "strategy"]
    fdms["pairs_so_far"] = fdms.groupby(keys)["pairs"].cumsum()
    smooth = fdms.groupby(keys)["pairs"].transform(lambda pairs: pairs.rolling(10, min_periods=1).mean())
    fdms["pairs_smooth"] = smooth
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3.2), layout="constrained")
    draw_curves(left, measured(curves))
    # Everybody is there in the first round, which would dwarf all others.
    draw_curves(middle, fdms[fdms["round"] > 10], "pairs_smooth")
    middle.set_ylim(bottom=0)
    draw_curves(right, fdms, "pairs_so_far")
    left.set_ylabel("test accuracy")
    middle.set_ylabel("pairs compared in a round (mean of 10)")
    right.set_ylabel("pairs compared so far")
    for axes in (left, middle, right):
        axes.set_xlabel("round")
    left.legend(frameon=False, fontsize=8)
    return figure


FIGURES: dict[str, Callable[[Gathered], Figure | None]] = {
    "clustered": draw_clustered,
    "released": draw_released,
    "local_work": draw_local_work,
    "clients": draw_clients,
    "fedprox": draw_fedprox,
    "general": draw_general,
    "similarity": draw_similarity,
    "reduction": draw_reduction,
}


def main() -> None:
    """Read the folder and draw what can be drawn."""
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
    words.out.mkdir(parents=True, exist_ok=True)
    for name, draw in FIGURES.items():
        figure = draw(found)
        if figure is None:
            print(f"{name}: no runs for it")
            continue
        figure.savefig(words.out / f"{name}.png", dpi=130)
        figure.savefig(words.out / f"{name}.pdf")
        plt.close(figure)
        print(words.out / f"{name}.png")


if __name__ == "__main__":
    main()
