"""Curves, matrices and plain figures drawn in Python: what assets/figures.js does, for notebooks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from fdsim.report.figure import plot_text, unpacked

#: Traces and layout of a plotly figure, with colours as tokens of the palette.
Built = tuple[list[dict[str, Any]], dict[str, Any]]


def plain(payload: Mapping[str, Any], choice: Mapping[str, Any]) -> Built:
    """Draw traces that are laid out in the payload itself, one of several views if there are."""
    view = payload["views"][choice["view"]] if "views" in payload else payload
    return view["traces"], dict(view["layout"])


def curves(payload: Mapping[str, Any], choice: Mapping[str, Any]) -> Built:
    """Draw curves that are named at their right end, with the page's ranges."""
    x_key, y_key = choice["x"], choice["y"]
    axis = payload["y"][y_key]
    scale: Callable[[float], float] = math.log10 if axis["log"] else float
    traces: list[dict[str, Any]] = []
    ends: list[dict[str, Any]] = []
    seen: list[float] = []
    along: list[float] = []
    for one in payload["series"]:
        if y_key not in one["y"]:
            continue
        x, mid = one["x"][x_key], one["y"][y_key]["mid"]
        # A logarithmic axis has no place for zero.
        mid = [None if value is None or (axis["log"] and value <= 0) else value for value in mid]
        known = [at for at, value in enumerate(mid) if value is not None]
        if not known:
            continue
        name = plot_text(one["name"])
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": x,
                "y": mid,
                "name": name,
                "connectgaps": True,
                "line": {"color": one["colour"], "dash": one["dash"], "width": 2.2},
                "hovertemplate": f"<b>{name}</b>  %{{y:{axis['format']}}}<extra></extra>",
            }
        )
        seen += [mid[at] for at in known]
        along += [x[0], x[known[-1]]]
        ends.append(
            {"name": name, "colour": one["colour"], "y": scale(mid[known[-1]]), "value": mid[known[-1]]}
        )
    low, high = (min(seen), max(seen)) if seen else (0.0, 1.0)
    if axis["log"]:
        low = max(low, high * 1e-6)
    if axis["whole"]:
        low, high = axis["floor"], axis["ceiling"]
    pad = (scale(high) - scale(low) or 1.0) * 0.06
    bottom = scale(low) - pad if "floor" not in axis or axis["log"] else max(axis["floor"], low - pad)
    top = scale(high) + pad if "ceiling" not in axis else min(axis["ceiling"], high + pad)
    layout: dict[str, Any] = {
        "hovermode": "x unified",
        "showlegend": False,
        "margin": {
            "l": 8,
            "t": 40,
            "b": 8,
            "r": 28 + max([7.6 * (len(e["name"]) + 7) for e in ends], default=0),
        },
        "annotations": _end_labels(ends, (bottom, top), max(along, default=1.0), axis["words"]),
        "xaxis": {
            "title": payload["x"][x_key]["title"],
            "showgrid": False,
            "hoverformat": payload["x"][x_key]["format"],
        },
        "yaxis": {"title": axis["title"], "range": [bottom, top], "tickformat": axis.get("ticks")},
    }
    if along:
        layout["xaxis"]["range"] = [min(along), max(along)]
    if axis["log"]:
        layout["yaxis"] |= {"type": "log", "dtick": 1}
    target = payload.get("target")
    if target and y_key == "accuracy" and bottom < target < top:
        line = {"color": "@axis", "width": 1, "dash": "dot"}
        layout["shapes"] = [
            {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": target, "y1": target, "line": line}
        ]
    return traces, layout


def _end_labels(
    ends: Sequence[dict[str, Any]], span: tuple[float, float], x: float, words: str
) -> list[dict[str, Any]]:
    """Name the curves at their ends, in their order and at least a line's height apart."""
    placed = sorted(ends, key=lambda end: end["y"])
    gap = (span[1] - span[0]) * 19 / 330
    for before, after in pairwise(placed):
        after["y"] = max(after["y"], before["y"] + gap)
    if placed and placed[-1]["y"] > span[1] - gap / 2:
        placed[-1]["y"] = span[1] - gap / 2
        for before, after in zip(placed[-2::-1], placed[:0:-1], strict=False):
            before["y"] = min(before["y"], after["y"] - gap)
    labels = []
    for end in placed:
        said = f"{end['value']:.1%}" if words == "percent" else f"{end['value']:.3g}"
        labels.append(
            {
                **{"x": x, "y": end["y"], "xref": "x", "yref": "y", "xanchor": "left", "yanchor": "middle"},
                **{"showarrow": False, "xshift": 8, "align": "left", "text": f"<b>{end['name']}</b> {said}"},
                "font": {"color": end["colour"], "size": 13},
            }
        )
    return labels


#: The code of an empty entry of a matrix.
_EMPTY = 65535


def matrix(payload: Mapping[str, Any], choice: Mapping[str, Any]) -> Built:
    """Draw a matrix over clients, true clusters framed."""
    chosen = next(one for one in payload["sets"] if one["name"] == choice["set"])
    frames = chosen["frames"]
    frame = frames[min(choice.get("frame", len(frames) - 1), len(frames) - 1)]
    labels, words = payload["labels"], payload["words"]
    count = len(labels)
    codes = unpacked(frame["values"]).reshape(count, count)
    z = np.where(codes == _EMPTY, np.nan, chosen["low"] + codes * chosen["step"])
    shown = f"{words['row']} %{{customdata[0]}}<br>{words['column']} %{{customdata[1]}}"
    about = np.stack(np.meshgrid(labels, labels, indexing="ij"), axis=-1)
    places = list(range(count))
    ticks = places[:: max(1, math.ceil(count / 25))]
    axis = {"tickvals": ticks, "ticktext": [labels[at] for at in ticks], "showgrid": False}
    trace = {
        **{"type": "heatmap", "z": z, "x": places, "y": places, "customdata": about},
        **{"zmin": chosen["zmin"], "zmax": chosen["zmax"], "hoverongaps": False},
        **{"xgap": 1 if count <= 60 else 0, "ygap": 1 if count <= 60 else 0},
        "colorscale": [[0, "@low"], [0.5, "@mid"], [1, "@high"]],
        "hovertemplate": f"{shown}<br>{words['value']} <b>%{{z:{words['format']}}}</b><extra></extra>",
        "colorbar": {"title": {"text": words["unit"], "side": "right"}, "thickness": 10, "outlinewidth": 0},
    }
    height = max(400, min(540, 160 + 20 * count))
    return [trace], {
        "height": height,
        # The matrix is a square.
        "width": height + 120,
        "shapes": [
            {
                **{"type": "rect", "x0": b["from"] - 0.5, "x1": b["to"] + 0.5},
                **{"y0": b["from"] - 0.5, "y1": b["to"] + 0.5, "line": {"color": "@ink", "width": 1.6}},
            }
            for b in payload["blocks"]
        ],
        "xaxis": {**axis, "title": words["column"].replace("and ", ""), "range": [-0.5, count - 0.5]},
        "yaxis": {**axis, "title": words["row"], "range": [count - 0.5, -0.5]},
    }
