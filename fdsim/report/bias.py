"""Participation bias: which data take part more often, and which the global model then serves worse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fdsim.data.coupling import mutual_information
from fdsim.errors import DataError, FdsimError
from fdsim.report.data import RunData
from fdsim.report.figure import Figure, Remark, plot_text, rounded

_TITLES = {"cluster": "true cluster", "device": "device", "class": "class"}


@dataclass(frozen=True)
class Grouping:
    """One way to divide the data: [K, groups] how much of each client belongs to each group."""

    key: str
    names: list[str]
    member: np.ndarray


def groupings(data: RunData) -> tuple[list[Grouping], str]:
    """Return the ways to divide this run's data, and the reason if one is missing."""
    found = []
    if data.true_cluster is not None:
        names, index = np.unique(data.true_cluster, return_inverse=True)
        found.append(Grouping("cluster", [f"cluster {c}" for c in names], np.eye(len(names))[index]))
    devices = list(dict.fromkeys(data.devices))
    if data.tables.get("fleet"):
        index = np.array([devices.index(name) for name in data.devices])
        found.append(Grouping("device", devices, np.eye(len(devices))[index]))
    try:
        mix = _label_counts(data)
    except (FdsimError, ImportError, OSError) as error:
        return found, f"Classes are omitted because the data could not be read again: {error}"
    found.append(Grouping("class", [f"class {c}" for c in range(mix.shape[1])], mix))
    return found, ""


def _label_counts(data: RunData) -> np.ndarray:
    """Count each client's samples by label [K, classes], dividing the data as the run did."""
    from fdsim.catalogue import own_kinds
    from fdsim.prepare import divide

    scenario = data.run.scenario
    own = own_kinds(scenario.data.model_dump(mode="json"))
    if own:
        raise DataError("data", f"'{own[0]}' is code of its own, which a report never imports")
    labels = scenario.data.labels()
    classes = int(labels.max()) + 1
    return divide(scenario).indices.label_counts(labels, classes).astype(float)


def completion_by_group(data: RunData) -> Figure | Remark:
    """Draw how often each part of the data took part."""
    title = "Completion rate by class, cluster and device"
    outcomes = data.outcomes
    if outcomes is None:
        return Remark(title, "There is no trace yet.")
    found, why = groupings(data)
    selected, completed = outcomes.selected.sum(axis=0), outcomes.completed.sum(axis=0)
    overall = completed.sum() / max(1, selected.sum())
    views = {}
    for grouping in found:
        frac = (completed @ grouping.member) / np.maximum(selected @ grouping.member, 1e-12)
        names = [plot_text(name) for name in grouping.names]
        views[grouping.key] = {
            "traces": [
                {
                    "type": "bar",
                    "x": names,
                    "y": rounded(frac, 4),
                    "marker": {"color": "@mid", "line": {"width": 0}},
                    "hovertemplate": "%{x}: <b>%{y:.1%}</b> completed<extra></extra>",
                }
            ],
            "layout": {
                "bargap": 0.35,
                "showlegend": False,
                "xaxis": {"title": _TITLES[grouping.key], "showgrid": False, "type": "category"},
                "yaxis": {"title": "completed, of those selected", "tickformat": ".0%", "range": [0, 1.02]},
                "shapes": [_line(overall)],
            },
            "table": {
                "columns": [grouping.key, "completion_frac"],
                "values": [grouping.names, rounded(frac, 6)],
            },
        }
    if not views:
        return Remark(title, why)
    remarks = [f"The dotted line is the mean of all clients, {overall:.1%}."]
    if data.true_cluster is not None:
        with np.errstate(invalid="ignore"):
            by_client = np.where(selected > 0, completed / np.maximum(selected, 1), np.nan)
        bits = mutual_information(data.true_cluster, by_client)
        remarks.append(
            f"Mutual information between cluster and completion: {bits:.4f} bits (0: dropout is independent of the data)."
        )
    return Figure(
        key="completion-by-group",
        title=title,
        says="The fraction of selected clients that completed, by part of the data; unequal bars mean biased participation.",
        builder="plain",
        payload={"views": views, "controls": [_view_control(list(views))]},
        remark=" ".join([*remarks, why]).strip(),
        height_px=340,
    )


def accuracy_by_group(data: RunData) -> Figure | Remark:
    """Draw the final accuracy on each part of the data, under each strategy."""
    title = "Final accuracy by class, cluster and device"
    if data.outcomes is None:
        return Remark(title, "There is no trace yet.")
    final = {label: seen for label in data.strategies if (seen := _client_accuracy(data, label)) is not None}
    if not final:
        return Remark(title, "Nothing has been evaluated yet, or the clients table was not recorded.")
    found, why = groupings(data)
    views = {}
    for grouping in found:
        values = {label: _of_groups(grouping, accuracy) for label, accuracy in final.items()}
        known = {label: value for label, value in values.items() if value is not None}
        if known:
            views[grouping.key] = _dots(data, grouping, known)
        else:
            why = "The clients' label mixes are too similar to derive an accuracy for each class."
    if not views:
        return Remark(title, why or "This run's data have no groups to compare.")
    return Figure(
        key="accuracy-by-group",
        title=title,
        says="Accuracy of the last evaluated global model on test data with each part's own label mix.",
        builder="plain",
        payload={"views": views, "controls": [_view_control(list(views))]},
        remark=why,
        height_px=360,
    )


def _client_accuracy(data: RunData, label: str) -> np.ndarray | None:
    """Return each client's accuracy [K] after the last evaluated round."""
    rows = data.of(label)
    evaluated = rows.loc[rows["test_accuracy"].notna(), "round"]
    if not len(evaluated):
        return None
    last = int(evaluated.iloc[-1])
    clients = data.run.read(
        "clients", columns=["client", "test_accuracy"], rounds=(last, last), strategy=label
    )
    # Of very many clients only the selected have a row, which say nothing of the others.
    if len(clients) == 0 or (data.trace is not None and len(clients) < data.trace.clients):
        return None
    seen = np.asarray(clients.sort_values("client")["test_accuracy"], dtype=np.float64)
    return None if np.isnan(seen).any() else seen


def _of_groups(grouping: Grouping, accuracy: np.ndarray) -> np.ndarray | None:
    """Return each group's accuracy; None where the clients cannot tell.

    A cluster's or device's is the mean of its clients'. A client's own is the mean of the classes', weighted by
    its label mix; with enough different mixes the classes' accuracies follow from those of the clients.
    """
    if grouping.key != "class":
        return np.asarray(accuracy @ grouping.member / grouping.member.sum(axis=0))
    mix = grouping.member / grouping.member.sum(axis=1, keepdims=True)
    # Recorded in single precision, about 1e-7: amplified a thousandfold it still shows as 0.1 %.
    if np.linalg.matrix_rank(mix) < mix.shape[1] or np.linalg.cond(mix) > 1e3:
        return None
    return np.asarray(np.clip(np.linalg.lstsq(mix, accuracy, rcond=None)[0], 0.0, 1.0))


def _dots(data: RunData, grouping: Grouping, values: dict[str, np.ndarray]) -> dict[str, Any]:
    names = [plot_text(name) for name in grouping.names]
    places = np.arange(len(names))
    # Strategies are drawn side by side, so that equal accuracies do not hide each other.
    aside = (np.arange(len(values)) - (len(values) - 1) / 2) * min(0.12, 0.7 / len(values))
    traces = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": plot_text(label),
            "x": (places + shift).tolist(),
            "text": names,
            "y": rounded(accuracy, 5),
            "marker": {
                "color": data.looks[label][0],
                "size": 11,
                "symbol": symbol,
                "line": {"color": "@surface", "width": 1},
            },
            "hovertemplate": "%{text}<br>%{fullData.name} <b>%{y:.1%}</b><extra></extra>",
        }
        for (label, accuracy), symbol, shift in zip(values.items(), _symbols(len(values)), aside, strict=True)
    ]
    columns: list[list[Any]] = [
        [name for name in grouping.names for _ in values],
        [label for _ in grouping.names for label in values],
    ]
    columns.append([float(f"{values[label][row]:.6g}") for row in range(len(names)) for label in values])
    return {
        "traces": traces,
        "layout": {
            "margin": {"l": 8, "r": 16, "t": 30, "b": 8},
            "xaxis": {
                "title": _TITLES[grouping.key],
                "tickvals": places.tolist(),
                "ticktext": names,
                "range": [-0.5, len(names) - 0.5],
                "showgrid": False,
            },
            "yaxis": {"title": "final test accuracy", "tickformat": ".0%"},
            "showlegend": True,
        },
        "table": {"columns": [grouping.key, "strategy", "accuracy"], "values": columns},
    }


def _symbols(count: int) -> list[str]:
    known = ["circle", "diamond", "square", "triangle-up", "triangle-down", "cross", "star", "hexagon"]
    return [known[index % len(known)] for index in range(count)]


def _line(y: float) -> dict[str, Any]:
    dotted = {"color": "@ink", "width": 1.2, "dash": "dot"}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y, "line": dotted}


def _view_control(keys: list[str]) -> dict[str, Any]:
    options = [{"value": key, "text": _TITLES[key]} for key in keys]
    return {"key": "view", "label": "by", "kind": "tabs", "options": options}
