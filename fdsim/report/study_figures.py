"""The figures of a study's cases: measures case by case, and heat maps of pairs of swept keys."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from fdsim.report.figure import Figure, plot_text, rounded
from fdsim.report.study_data import StudyData
from fdsim.report.study_headline import rows_of

if TYPE_CHECKING:
    import pandas as pd

#: Of a study that sweeps many keys, the first pairs have a heat map.
_MOST_PAIRS = 6
#: The width over which the strategies' points of one case are spread, where cases are 1 apart.
_DODGE = 0.6
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "hexagon")


@dataclass(frozen=True)
class _ByCase:
    """A measure as a figure of the cases shows it."""

    measure: str
    title: str
    axis: str
    format: str
    bounds: tuple[float, float]
    """Between which its values lie, whatever Student's t says of three seeds."""


_FINAL = _ByCase("final_accuracy", "final accuracy", "final test accuracy", ".1%", (0.0, 1.0))
#: What the end does not tell.
_COURSE = (
    _ByCase(
        "worst_accuracy", "worst after ⅓", "lowest accuracy after a third of the rounds", ".1%", (0.0, 1.0)
    ),
    _ByCase("gap_to_full", "mean gap to full", "mean gap to full", ".1%", (-1.0, 1.0)),
    _ByCase("hours_below_full", "time below 90 % of full", "hours below 90 % of full", ".1f", (0.0, np.inf)),
)
_INTERVALS = "Mean over the seeds; bars are 95% confidence intervals of the mean (Student's t)."


def case_figures(study: StudyData, cases: list[tuple[str, pd.DataFrame]]) -> list[Figure]:
    """Draw final accuracies, and measures of the way there, of every strategy in every case."""
    if len(cases) < 2:
        return []
    final = Figure(
        key="final-by-case",
        title="Final accuracy by case",
        says=_INTERVALS,
        builder="plain",
        payload=_case_view(study, cases, _FINAL),
    )
    known = [one for one in _COURSE if any(_known(rows, one.measure) for _, rows in cases)]
    if not known:
        return [final]
    options = [{"value": one.measure, "text": one.title} for one in known]
    course = Figure(
        key="course-by-case",
        title="The course of learning by case",
        says=f"What the end does not tell: how low, how far behind full, and for how long. {_INTERVALS}",
        builder="plain",
        payload={
            "views": {one.measure: _case_view(study, cases, one) for one in known},
            "controls": [{"key": "view", "label": "measure", "kind": "select", "options": options}],
        },
    )
    return [final, course]


def _known(rows: pd.DataFrame, measure: str) -> dict[str, Any]:
    """Return each strategy's row of a measure, of those for which it is known."""
    return {name: row for name, row in rows_of(rows, measure).items() if np.isfinite(row["mean"])}


def _case_view(study: StudyData, cases: list[tuple[str, pd.DataFrame]], shown: _ByCase) -> dict[str, Any]:
    """Draw a measure of every strategy in every case, with its interval.

    Cases in the order of one swept number are joined by lines; others have no order that a line could show. The points
    of a case stand side by side, so that none hides another.
    """
    joined = _ordered(study)
    told = [_known(rows, shown.measure) for _, rows in cases]
    names = list(dict.fromkeys(name for rows in told for name in rows))
    traces, values = [], list[list[Any]]()
    for index, name in enumerate(names):
        found = [(at, cases[at][0], rows[name]) for at, rows in enumerate(told) if name in rows]
        mean, low, high = (
            np.array([row[key] for *_, row in found], dtype=float) for key in ("mean", "low", "high")
        )
        low, high = np.clip(low, *shown.bounds), np.clip(high, *shown.bounds)
        aside = _DODGE * ((index + 0.5) / len(names) - 0.5)
        colour, dash = study.looks[name]
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
                    "color": colour,
                },
                "line": {"color": colour, "dash": dash, "width": 1.6},
                "marker": {"size": 9, "color": colour, "symbol": _SYMBOLS[index % len(_SYMBOLS)]},
                "hovertemplate": f"%{{text}}<br>%{{fullData.name}} <b>%{{y:{shown.format}}}</b><extra></extra>",
            }
        )
        values += [
            [case, name, float(row["mean"]), row["low"], row["high"], int(row["n"])] for _, case, row in found
        ]
    columns = ["case", "strategy", shown.measure, "low", "high", "seeds"]
    layout = {
        "showlegend": True,
        "margin": {"l": 8, "r": 16, "t": 30, "b": 8},
        "xaxis": {
            "title": "case",
            "tickvals": list(range(len(cases))),
            "ticktext": [plot_text(case).replace(", ", "<br>") for case, _ in cases],
            "range": [-0.5, len(cases) - 0.5],
            "showgrid": False,
        },
        "yaxis": {"title": shown.axis, "tickformat": ".0%" if "%" in shown.format else None},
    }
    table = {"columns": columns, "values": [[_plain(row[i]) for row in values] for i in range(len(columns))]}
    return {"traces": traces, "layout": layout, "table": table}


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
