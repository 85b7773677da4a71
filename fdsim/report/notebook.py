"""The report's figures as plotly figures, for notebooks: what the page's script draws from a payload, drawn in Python.

The payloads are the page's own. A figure of the page has controls; here a keyword chooses: `x="hours"`, `y="loss"`.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fdsim.catalogue import nearest
from fdsim.errors import InputError
from fdsim.report.bias import accuracy_by_group, completion_by_group
from fdsim.report.colours import palettes
from fdsim.report.curves import accuracy_figure
from fdsim.report.data import RunData, gather
from fdsim.report.figure import Figure, Remark, plot_text
from fdsim.report.friendship import friends_figure, stand_ins_figure
from fdsim.report.outcomes import causes_by_hour, causes_by_round, map_figure
from fdsim.report.run_page import run_curves
from fdsim.report.similarity import similarity_figure
from fdsim.report.substitution import error_figure, pairs_figure
from fdsim.report.theory_panel import bound_curves, theory_for

if TYPE_CHECKING:
    import plotly.graph_objects as go

Built = tuple[list[dict[str, Any]], dict[str, Any]]


def _accuracy(data: RunData) -> Figure | Remark:
    return accuracy_figure(run_curves(data), data.tables.get("target_accuracy"))


def _rounds(data: RunData) -> int:
    return data.outcomes.rounds if data.outcomes is not None else 1


#: What `Run.plot` can draw → the figure of the page, and the choices that the name implies.
FIGURES: dict[str, tuple[Callable[[RunData], Figure | Remark], dict[str, Any]]] = {
    "accuracy": (_accuracy, {}),
    "loss": (_accuracy, {"y": "loss"}),
    "dropout": (causes_by_round, {}),
    "dropout_by_hour": (causes_by_hour, {}),
    "outcomes": (map_figure, {}),
    "completion": (completion_by_group, {}),
    "groups": (accuracy_by_group, {}),
    "friends": (lambda data: friends_figure(run_curves(data), _rounds(data)), {}),
    "similarity": (similarity_figure, {}),
    "stand_ins": (stand_ins_figure, {}),
    "substitution": (
        lambda data: error_figure(run_curves(data), bound_curves(theory_for(data)), _rounds(data)),
        {},
    ),
    "pairs": (lambda data: pairs_figure(run_curves(data)), {}),
}


def plot(folder: Path, what: str, choices: Mapping[str, Any], *, theme: str = "light") -> go.Figure:
    """Return a figure of a run's report as a plotly figure."""
    import plotly.graph_objects as go

    if what not in FIGURES:
        raise InputError("plot", f"no figure called '{what}'" + nearest(what, list(FIGURES)))
    make, implied = FIGURES[what]
    figure = make(gather(folder))
    if isinstance(figure, Remark):
        raise InputError(f"{folder}: plot {what!r}", figure.says)
    choice = _choice(figure, {**implied, **choices})
    traces, layout = _BUILDERS[figure.builder](figure.payload, choice)
    colours = palettes()[theme]
    layout = {"height": figure.height_px, **layout}
    made = go.Figure(
        data=_coloured(traces, colours), layout=_coloured(_whole(layout, figure), colours), skip_invalid=True
    )
    return made


def _choice(figure: Figure, given: Mapping[str, Any]) -> dict[str, Any]:
    """Choose as the page's controls do, by the first option unless the caller names another by value or text."""
    controls = {control["key"]: control for control in figure.payload.get("controls", [])}
    choice = {key: c["options"][c.get("start", 0)]["value"] for key, c in controls.items()}
    for name, value in given.items():
        key = {"strategy": "set", "round": "frame"}.get(name, name)
        if key not in controls:
            raise InputError(
                "plot", f"{figure.key} has no choice called '{name}'" + nearest(name, list(controls))
            )
        options = controls[key]["options"]
        found = [o["value"] for o in options if str(value) == o["text"]] or [
            o["value"] for o in options if str(value) == str(o["value"])
        ]
        if not found:
            known = ", ".join(str(o["text"] if key == "frame" else o["value"]) for o in options)
            raise InputError("plot", f"{name}={value!r} is not among the choices", f"there is: {known}")
        choice[key] = found[0]
    return choice


# -- builders: the same as those of assets/*.js


def _plain(payload: Mapping[str, Any], choice: Mapping[str, Any]) -> Built:
    view = payload["views"][choice["view"]] if "views" in payload else payload
    return view["traces"], dict(view["layout"])


def _curves(payload: Mapping[str, Any], choice: Mapping[str, Any]) -> Built:
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


def _unpacked(pack: Mapping[str, Any]) -> np.ndarray:
    found = np.frombuffer(base64.b64decode(pack["bytes"]), dtype=np.dtype(f"<{pack['kind']}"))
    return found.reshape(pack["shape"])


#: The code of an empty entry of a matrix.
_EMPTY = 65535


def _matrix(payload: Mapping[str, Any], choice: Mapping[str, Any]) -> Built:
    """Draw a matrix over clients, true clusters framed."""
    chosen = next(one for one in payload["sets"] if one["name"] == choice["set"])
    frames = chosen["frames"]
    frame = frames[min(choice.get("frame", len(frames) - 1), len(frames) - 1)]
    labels, words = payload["labels"], payload["words"]
    count = len(labels)
    codes = _unpacked(frame["values"]).reshape(count, count)
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


def _outcomes(payload: Mapping[str, Any], choice: Mapping[str, Any]) -> Built:
    """Draw every client in every round; `sort` is completion, cluster, device or client."""
    codes, words = _unpacked(payload["codes"]), payload["words"]
    clients, rounds = codes.shape
    completion = np.asarray(payload["completion"], dtype=np.float64)
    keys = {"completion": [-completion], "client": []}.get(choice["sort"])
    if keys is None:
        keys = [-completion, np.asarray(payload[choice["sort"]])]
    order = np.lexsort([np.arange(clients), *keys])
    count = len(words)
    ticks = list(range(0, clients, max(1, math.ceil(clients / 20))))
    texts = np.array([word["text"] for word in words])
    names = [
        f"client {payload['client'][at]} · {plot_text(payload['devices'][payload['device'][at]])}"
        for at in order
    ]
    heat = {
        **{"type": "heatmap", "z": codes[order], "x": payload["rounds"], "y": list(range(clients))},
        **{"text": texts[codes[order]], "customdata": np.repeat(np.array(names)[:, None], rounds, axis=1)},
        **{"zmin": -0.5, "zmax": count - 0.5, "showscale": False, "showlegend": False},
        "colorscale": [
            stop
            for at, w in enumerate(words)
            for stop in ([at / count, w["colour"]], [(at + 1) / count, w["colour"]])
        ],
        "hovertemplate": "<b>round %{x}</b>  %{text}<br>%{customdata}<extra></extra>",
    }
    # A heat map has no legend of its own.
    legend = [
        {
            **{"type": "scatter", "mode": "markers", "x": [None], "y": [None], "name": words[code]["text"]},
            "marker": {"symbol": "square", "size": 11, "color": words[code]["colour"]},
        }
        for code in np.unique(codes)
    ]
    tick_names = [str(payload["client"][order[at]]) for at in ticks]
    return [heat, *legend], {
        "height": max(300, min(640, 120 + 16 * clients)),
        "showlegend": True,
        "xaxis": {"title": "round", "showgrid": False},
        "yaxis": {
            **{"title": f"client, by {choice['sort']}", "range": [clients - 0.5, -0.5], "showgrid": False},
            **{"tickvals": ticks, "ticktext": tick_names},
        },
    }


_BUILDERS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], Built]] = {
    "plain": _plain,
    "curves": _curves,
    "matrix": _matrix,
    "outcomes": _outcomes,
}


# -- the page's look

_FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
_AXIS = {
    **{"gridcolor": "@grid", "linecolor": "@axis", "tickcolor": "@axis", "zeroline": False},
    **{"automargin": True, "ticks": "outside", "ticklen": 4, "tickfont": {"color": "@soft", "size": 12}},
}
#: What holds data or names is never read as a colour.
_DATA_KEYS = frozenset(
    "x y z base text customdata name legendgroup ticktext tickvals hovertemplate".split()  # noqa: SIM905
)


def _whole(layout: dict[str, Any], figure: Figure) -> dict[str, Any]:
    whole: dict[str, Any] = {
        "template": "none",
        "font": {"family": _FONT, "size": 13, "color": "@ink"},
        "title": {"text": figure.title, "font": {"size": 15}, "x": 0, "xref": "paper"},
        "paper_bgcolor": "@surface",
        "plot_bgcolor": "@surface",
        "hovermode": "closest",
        "hoverlabel": {
            "bgcolor": "@surface",
            "bordercolor": "@axis",
            "font": {"color": "@ink"},
            "align": "left",
        },
        "xaxis": {},
        "yaxis": {},
        **layout,
    }
    whole["legend"] = {
        "orientation": "h",
        "x": 0,
        "y": -0.2,
        "font": {"color": "@soft"},
        **layout.get("legend", {}),
    }
    whole["margin"] = {"l": 8, "r": 16, "b": 8, **layout.get("margin", {}), "t": 44}
    for key in ("xaxis", "yaxis", "xaxis2", "yaxis2"):
        if key in whole:
            axis = {**_AXIS, **{name: value for name, value in whole[key].items() if value is not None}}
            title = axis.get("title", "")
            text = title if isinstance(title, dict) else {"text": title}
            whole[key] = {**axis, "title": {"standoff": 10, "font": {"color": "@soft", "size": 13}, **text}}
    return whole


def _coloured(value: Any, colours: Mapping[str, str]) -> Any:
    """Put colours in place of tokens: "@fdms" is one of the palette, "@fdms/0.2" the same with that opacity."""
    if isinstance(value, str) and value.startswith("@"):
        token, _, alpha = value[1:].partition("/")
        if token not in colours:
            return value
        red, green, blue = (int(colours[token][at : at + 2], 16) for at in (1, 3, 5))
        return f"rgba({red},{green},{blue},{alpha})" if alpha else colours[token]
    if isinstance(value, Mapping):
        return {k: inner if k in _DATA_KEYS else _coloured(inner, colours) for k, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_coloured(inner, colours) for inner in value]
    return value
