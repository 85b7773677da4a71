"""The figures of a study's cases: measures case by case, and heat maps of pairs of swept keys."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from fdsim.report.figure import Figure, plot_text, rounded
from fdsim.report.study_data import StudyData
from fdsim.report.study_headline import final_rows

if TYPE_CHECKING:
    import pandas as pd

#: Of a study that sweeps many keys, the first pairs have a heat map.
_MOST_PAIRS = 6
#: The width over which the strategies' points of one case are spread, where cases are 1 apart.
_DODGE = 0.6
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "hexagon")


def final_figure(study: StudyData, cases: list[tuple[str, pd.DataFrame]]) -> list[Figure]:
    """Draw the final accuracy of every strategy in every case, with its interval.

    Cases in the order of one swept number are joined by lines; others have no order that a line could show. The points
    of a case stand side by side, so that none hides another.
    """
    if len(cases) < 2:
        return []
    joined = _ordered(study)
    names = list(dict.fromkeys(name for _, rows in cases for name in final_rows(rows)))
    traces, values = [], list[list[Any]]()
    for index, name in enumerate(names):
        found = [
            (at, case, final_rows(rows)[name])
            for at, (case, rows) in enumerate(cases)
            if name in final_rows(rows)
        ]
        mean = np.array([row["mean"] for *_, row in found], dtype=float)
        low = np.array([row["low"] for *_, row in found], dtype=float)
        high = np.array([row["high"] for *_, row in found], dtype=float)
        # An accuracy lies between 0 and 1, whatever Student's t says of three seeds.
        low, high = np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)
        aside = _DODGE * ((index + 0.5) / len(names) - 0.5)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers" if joined else "markers",
                "name": plot_text(name),
                "x": [at + aside for at, *_ in found],
                "y": rounded(mean),
                "text": [plot_text(case) for _, case, _ in found],
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": rounded(np.nan_to_num(high - mean)),
                    "arrayminus": rounded(np.nan_to_num(mean - low)),
                    "thickness": 1.4,
                    "width": 4,
                    "color": study.looks[name][0],
                },
                "line": {"color": study.looks[name][0], "dash": study.looks[name][1], "width": 1.6},
                "marker": {
                    "size": 9,
                    "color": study.looks[name][0],
                    "symbol": _SYMBOLS[index % len(_SYMBOLS)],
                },
                "hovertemplate": "%{text}<br>%{fullData.name} <b>%{y:.1%}</b><extra></extra>",
            }
        )
        values += [
            [case, name, float(row["mean"]), row["low"], row["high"], int(row["n"])] for _, case, row in found
        ]
    columns = ["case", "strategy", "final_accuracy", "low", "high", "seeds"]
    layout = {
        "showlegend": True,
        "margin": {"l": 8, "r": 16, "t": 30, "b": 8},
        "xaxis": {
            "title": "case",
            "tickvals": list(range(len(cases))),
            "ticktext": [plot_text(case) for case, _ in cases],
            "range": [-0.5, len(cases) - 0.5],
            "showgrid": False,
        },
        "yaxis": {"title": "final test accuracy", "tickformat": ".0%"},
    }
    table = {"columns": columns, "values": [[_plain(row[i]) for row in values] for i in range(len(columns))]}
    return [
        Figure(
            key="final-by-case",
            title="Final accuracy by case",
            says="Mean over the seeds; bars are 95% confidence intervals of the mean (Student's t).",
            builder="plain",
            payload={"traces": traces, "layout": layout, "table": table},
        )
    ]


def _ordered(study: StudyData) -> bool:
    """Tell whether the cases are the values of one number, in order."""
    keys = [name for name in study.comparison.groups if name != "case"]
    if len(keys) != 1 or "case" in study.comparison.groups:
        return False
    values = [settings[keys[0]] for settings, _ in study.comparison.by_group()]
    numbers = all(isinstance(v, int | float | np.number) and not isinstance(v, bool) for v in values)
    return numbers and values == sorted(values)


def pair_figures(study: StudyData) -> list[Figure]:
    """Draw a heat map of final accuracies for each pair of swept keys, one view per strategy."""
    keys = [name for name in study.comparison.groups if name != "case"]
    final = study.comparison.table
    final = final[(final["measure"] == "final_accuracy") & final["mean"].notna()]
    made: list[Figure] = []
    for first, second in list(combinations(keys, 2))[:_MOST_PAIRS]:
        places = {key: list(dict.fromkeys(final[key].map(str))) for key in (first, second)}
        # Keys that move together have no grid to show.
        if len(final[[first, second]].map(str).drop_duplicates()) <= max(map(len, places.values())):
            continue
        views = {
            str(name): _pair_view(rows, first, second, places)
            for name, rows in final.groupby("strategy", sort=False)
        }
        options = [{"value": name, "text": name} for name in views]
        made.append(
            Figure(
                key=f"pair-{len(made) + 1}",
                title=f"Final accuracy by {first} and {second}",
                says="Mean over the seeds, and over whatever else was swept.",
                builder="plain",
                payload={
                    "views": views,
                    "controls": [{"key": "view", "label": "strategy", "kind": "select", "options": options}],
                },
            )
        )
    return made


def _pair_view(rows: pd.DataFrame, first: str, second: str, places: dict[str, list[str]]) -> dict[str, Any]:
    means = rows.groupby([rows[second].map(str), rows[first].map(str)], sort=False)["mean"].mean()
    grid = [[means.get((y, x), np.nan) for x in places[first]] for y in places[second]]
    cells = [[x, y, float(means[(y, x)])] for y in places[second] for x in places[first] if (y, x) in means]
    return {
        "traces": [
            {
                "type": "heatmap",
                "x": [plot_text(x) for x in places[first]],
                "y": [plot_text(y) for y in places[second]],
                "z": [rounded(line) for line in grid],
                "colorscale": [[0, "@low"], [0.5, "@mid"], [1, "@high"]],
                "texttemplate": "%{z:.1%}",
                "xgap": 2,
                "ygap": 2,
                "hovertemplate": "%{x}, %{y}: <b>%{z:.1%}</b><extra></extra>",
                "colorbar": {"tickformat": ".0%", "thickness": 10, "outlinewidth": 0},
            }
        ],
        "layout": {
            "xaxis": {"title": plot_text(first), "type": "category", "showgrid": False},
            "yaxis": {"title": plot_text(second), "type": "category", "showgrid": False},
        },
        "table": {
            "columns": [first, second, "final_accuracy"],
            "values": [[cell[i] for cell in cells] for i in range(3)],
        },
    }


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value
