"""Outcomes: the client × round map, the causes of dropout by round and by time of day."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from fdsim.report.data import Outcomes, RunData
from fdsim.report.figure import Figure, Remark, evenly, packed, rounded
from fdsim.trace import Cause, Outcome

#: What fits on a screen; beyond it clients are sampled by a stated rule.
_CLIENTS = 1000
_ROUNDS = 1000
_HOUR_S, _DAY_S = 3600.0, 86400.0

_COMPLETED, _NOT_SELECTED, _FIRST_CAUSE = 0, 1, 2


def words() -> list[dict[str, str]]:
    """List the outcomes and causes that the map shows, in the order of their codes."""
    rest = [Outcome.completed, Outcome.not_selected]
    shown = [
        {"outcome": outcome.name, "text": _text(outcome), "colour": f"@{outcome.name}"} for outcome in rest
    ]
    for cause in Cause:
        about = {"outcome": Outcome.dropped.name, "cause": cause.name}
        shown.append({**about, "text": _text(cause), "colour": f"@{cause.name}"})
    return shown


def _text(code: IntEnum) -> str:
    return code.name.replace("_", " ")


def map_codes(outcomes: Outcomes) -> np.ndarray:
    """Encode outcomes and causes [T, K] as positions in `words`."""
    codes = np.full(outcomes.outcome.shape, _NOT_SELECTED, dtype=np.uint8)
    codes[outcomes.completed] = _COMPLETED
    dropped = outcomes.outcome == Outcome.dropped
    codes[dropped] = outcomes.cause[dropped].astype(np.uint8) + _FIRST_CAUSE
    return codes


def map_figure(data: RunData) -> Figure | Remark:
    """Draw every client in every round, coloured by outcome and cause."""
    outcomes = data.outcomes
    if outcomes is None:
        return Remark(
            "Every client in every round",
            "The fleet is not fully simulated yet, so there is no trace to draw.",
        )
    by_completion = np.argsort(-outcomes.completion_frac, kind="stable")
    clients = np.sort(by_completion[evenly(outcomes.clients, _CLIENTS)])
    rounds = evenly(outcomes.rounds, _ROUNDS)
    remarks = []
    if len(clients) < outcomes.clients:
        remarks.append(
            f"{len(clients):,} of {outcomes.clients:,} clients are shown, evenly spaced in order of completion rate."
        )
    if len(rounds) < outcomes.rounds:
        remarks.append(f"{len(rounds):,} of {outcomes.rounds:,} rounds are shown, evenly spaced.")
    devices = list(dict.fromkeys(data.devices))
    cluster = data.true_cluster
    sorts = [("completion", "completion rate")]
    sorts += [("cluster", "cluster")] if cluster is not None else []
    sorts += [("device", "device")] if len(devices) > 1 else []
    sorts += [("client", "client number")]
    return Figure(
        key="outcomes",
        title="Every client in every round",
        says="One row per client, one column per round: pale where it completed, else coloured by the cause of its dropout.",
        builder="outcomes",
        payload={
            "codes": packed(map_codes(outcomes)[rounds][:, clients].T, "u1"),
            "client": clients.tolist(),
            "rounds": (rounds + 1).tolist(),
            "completion": rounded(outcomes.completion_frac[clients], 4),
            "cluster": None if cluster is None else cluster[clients].tolist(),
            "device": [devices.index(data.devices[c]) for c in clients],
            "devices": devices,
            "words": words(),
            "controls": [
                {
                    "key": "sort",
                    "label": "sort by",
                    "kind": "tabs",
                    "options": [{"value": v, "text": t} for v, t in sorts],
                }
            ],
        },
        remark=" ".join(remarks),
    )


def causes_by_hour(data: RunData) -> Figure | Remark:
    """Draw the causes of dropout over the hours of the day."""
    title = "Causes of dropout over the time of day"
    outcomes = data.outcomes
    if outcomes is None:
        return Remark(title, "There is no trace yet.")
    hour = ((outcomes.round_start_s % _DAY_S) // _HOUR_S).astype(np.int64)
    selected = np.bincount(hour, weights=outcomes.selected.sum(axis=1), minlength=24)
    if np.count_nonzero(selected) < 2:
        return Remark(title, "All rounds start in the same hour of the day, so there is nothing to compare.")
    counts = _counts_by(outcomes, hour, 24)
    view = _stacked(counts, selected, list(range(24)), x_title="hour of the simulated day", column="hour")
    return Figure(
        key="causes-by-hour",
        title=title,
        says="The fraction of selected clients that dropped out in each hour, by cause.",
        builder="plain",
        payload=view,
        height_px=340,
    )


def causes_by_round(data: RunData) -> Figure | Remark:
    """Draw the causes of dropout along the run."""
    title = "Causes of dropout over the run"
    outcomes = data.outcomes
    if outcomes is None:
        return Remark(title, "There is no trace yet.")
    bins = min(outcomes.rounds, 100)
    group = np.arange(outcomes.rounds) * bins // outcomes.rounds
    selected = np.bincount(group, weights=outcomes.selected.sum(axis=1), minlength=bins)
    first = np.searchsorted(group, np.arange(bins)) + 1
    view = _stacked(
        _counts_by(outcomes, group, bins), selected, first.tolist(), x_title="round", column="round"
    )
    each = (
        "" if bins == outcomes.rounds else f" Each bar stands for about {outcomes.rounds / bins:.0f} rounds."
    )
    return Figure(
        key="causes-by-round",
        title=title,
        says=f"The fraction of selected clients that dropped out in each round, by cause.{each}",
        builder="plain",
        payload=view,
        height_px=340,
    )


def _counts_by(outcomes: Outcomes, group: np.ndarray, groups: int) -> np.ndarray:
    """Count dropouts as [groups, causes]."""
    counts = np.zeros((groups, len(Cause)), dtype=np.int64)
    for cause in Cause:
        per_round = ((outcomes.outcome == Outcome.dropped) & (outcomes.cause == cause)).sum(axis=1)
        counts[:, cause] = np.bincount(group, weights=per_round, minlength=groups)
    return counts


def _stacked(
    counts: np.ndarray, selected: np.ndarray, x: list[Any], *, x_title: str, column: str
) -> dict[str, Any]:
    frac = counts / np.maximum(selected, 1)[:, None]
    # The most frequent cause is at the bottom, where bars can be compared.
    found = [cause for cause in np.argsort(-counts.sum(axis=0), kind="stable") if counts[:, cause].any()]
    traces = [
        {
            "type": "bar",
            "name": Cause(cause).name.replace("_", " "),
            "x": x,
            "y": rounded(frac[:, cause], 4),
            "customdata": np.stack([counts[:, cause], selected.astype(np.int64)], axis=-1).tolist(),
            "marker": {"color": f"@{Cause(cause).name}", "line": {"width": 0}},
            "hovertemplate": "%{fullData.name} <b>%{y:.1%}</b> (%{customdata[0]} of %{customdata[1]})<extra></extra>",
        }
        for cause in found
    ]
    values = [[value for value in x for _ in found], [Cause(c).name for _ in x for c in found]]
    values.append([int(counts[row, c]) for row in range(len(x)) for c in found])
    values.append([int(selected[row]) for row in range(len(x)) for _ in found])
    return {
        "traces": traces,
        "layout": {
            "barmode": "stack",
            "bargap": 0.18,
            "hovermode": "x unified",
            "showlegend": True,
            "legend": {"traceorder": "normal"},
            "margin": {"l": 8, "r": 16, "t": 30, "b": 8},
            "xaxis": {"title": x_title, "showgrid": False, "dtick": 3 if column == "hour" else None},
            "yaxis": {"title": "fraction of selected clients", "tickformat": ".0%", "rangemode": "tozero"},
        },
        "table": {"columns": [column, "cause", "dropped", "selected"], "values": values},
    }
