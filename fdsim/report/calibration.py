"""What strategies expected of their stand-ins: predicted against measured errors, and what was chosen how often."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fdsim.report.data import RunData
from fdsim.report.figure import Figure, Remark, Table, evenly, plot_text, rounded
from fdsim.telemetry.parts import Part, part_paths
from fdsim.telemetry.schema import Substitute
from fdsim.telemetry.strategy_log import partition

#: Points drawn of a strategy: more would hide each other.
_POINTS = 1500
#: Of the reliability line, each for as many substitutions.
_STEPS = 12
_SUBSTITUTES = {
    Substitute.client: "another client",
    Substitute.stored: "its own memory",
    Substitute.stored_on_mean: "its memory on the mean",
    Substitute.mean: "the mean",
    Substitute.zero: "nothing",
    Substitute.left_out: "left out",
}


def calibration_figure(data: RunData) -> Figure | Remark:
    """Draw measured against predicted errors of substitutes, and their running median, the reliability line."""
    title = "Predicted against measured errors of substitutes"
    found = {label: pairs for label in data.strategies if len((pairs := _errors(data, label))[0]) > 1}
    if not found:
        return Remark(
            title,
            "No strategy of this run predicts the errors of its substitutes (fdms_memory does), or they were not "
            "measured: set `counterfactual = true` under [telemetry].",
        )
    options = [{"value": label, "text": plot_text(label)} for label in found]
    return Figure(
        key="calibration",
        title=title,
        says="Each dot is a missing client in a round: the error ‖Δ̃ − Δ‖² that the strategy expected of its substitute, "
        "and the one measured. The line is the median measured error; on the dotted line predictions come true.",
        builder="plain",
        payload={
            "views": {label: _view(data.looks[label][0], *pairs) for label, pairs in found.items()},
            "controls": [{"key": "view", "label": "strategy", "kind": "tabs", "options": options}],
        },
        remark=" ".join(_sentence(label, *pairs) for label, pairs in found.items()),
        height_px=400,
    )


def substitutes_table(data: RunData) -> Table | Remark:
    """Count what represented the missing clients under each strategy."""
    title = "What represented the missing clients"
    counted = {label: _counts(data, label) for label in data.strategies}
    counted = {label: counts for label, counts in counted.items() if counts.sum()}
    if not counted:
        return Remark(title, "No client was missing from a recorded round, or clients were not recorded.")
    used = [code for code in _SUBSTITUTES if any(counts[code] for counts in counted.values())]
    return Table(
        key="substitutes",
        title=title,
        says="The part of all missing clients that each kind of substitute represented; of mixtures the largest part counts.",
        columns=["strategy", "missing", *(_SUBSTITUTES[code] for code in used)],
        rows=[
            [label, f"{counts.sum():,}", *(f"{counts[code] / counts.sum():.1%}" for code in used)]
            for label, counts in counted.items()
        ],
        swatches=[data.looks[label][0] for label in counted],
    )


def _errors(data: RunData, label: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the predicted and the measured errors of all substitutes that have both."""
    columns = ["predicted_error", "substitution_error"]
    found = [np.empty((0, 2))]
    for path in part_paths(data.run.path / "clients" / partition(label)):
        part = Part(path)
        if not set(columns) <= set(part.schema.names):  # a run of before errors were predicted
            continue
        table = part.read(columns)
        found.append(np.column_stack([_numbers(table[name]) for name in columns]))
    both = np.concatenate(found)
    both = both[(both > 0).all(axis=1) & np.isfinite(both).all(axis=1)]
    return both[:, 0], both[:, 1]


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(pc.fill_null(pc.cast(column, pa.float64()), np.nan).to_numpy())


def _counts(data: RunData, label: str) -> np.ndarray:
    """Count the substitutes of a strategy by code."""
    counts = np.zeros(len(Substitute), dtype=np.int64)
    for path in part_paths(data.run.path / "clients" / partition(label)):
        words = Part(path).read(["substitute"])["substitute"].value_counts().to_pylist()
        for entry in words:
            if entry["values"] in Substitute.__members__:
                counts[Substitute[entry["values"]]] += entry["counts"]
    return counts


def reliability(predicted: np.ndarray, measured: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the median predicted and measured errors of groups of equal size, by predicted error."""
    groups = np.array_split(np.argsort(predicted, kind="stable"), min(_STEPS, len(predicted)))
    return (
        np.array([np.median(predicted[group]) for group in groups]),
        np.array([np.median(measured[group]) for group in groups]),
    )


def _view(colour: str, predicted: np.ndarray, measured: np.ndarray) -> dict[str, Any]:
    shown = evenly(len(predicted), _POINTS)
    x, y = reliability(predicted, measured)
    ends = [float(min(predicted.min(), measured.min())), float(max(predicted.max(), measured.max()))]
    hover = "predicted %{x:.3g}<br>measured <b>%{y:.3g}</b><extra></extra>"
    dots = {"color": colour, "size": 5, "opacity": 0.35, "line": {"width": 0}}
    return {
        "traces": [
            {
                "type": "scatter",
                "mode": "markers",
                "name": "a missing client in a round",
                "x": rounded(predicted[shown], 4),
                "y": rounded(measured[shown], 4),
                "marker": dots,
                "hovertemplate": hover,
            },
            {
                "type": "scatter",
                "mode": "lines",
                "name": "as predicted",
                "x": rounded(ends, 4),
                "y": rounded(ends, 4),
                "line": {"color": "@soft", "width": 1.5, "dash": "dot"},
                "hoverinfo": "skip",
            },
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": "median",
                "x": rounded(x, 4),
                "y": rounded(y, 4),
                "line": {"color": "@ink", "width": 2},
                "marker": {"color": "@ink", "size": 6},
                "hovertemplate": hover,
            },
        ],
        "layout": {
            "showlegend": True,
            "xaxis": {"title": "predicted error", "type": "log"},
            "yaxis": {"title": "measured error", "type": "log"},
        },
        "table": {
            "columns": ["predicted_error", "measured_error"],
            "values": [rounded(predicted[shown], 6), rounded(measured[shown], 6)],
        },
    }


def _sentence(label: str, predicted: np.ndarray, measured: np.ndarray) -> str:
    from scipy.stats import spearmanr

    return (
        f"{label}: {len(predicted):,} substitutes, rank correlation {spearmanr(predicted, measured).statistic:.2f}, "
        f"predictions {np.median(predicted / measured):.2f} times the measured errors in the median."
    )
