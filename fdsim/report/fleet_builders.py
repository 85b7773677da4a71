"""The figures of the fleet drawn in Python: what assets/fleet_figures.js does, for notebooks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fdsim.report.builders import Built
from fdsim.report.figure import plot_text, unpacked


def outcomes(payload: Mapping[str, Any], choice: Mapping[str, Any]) -> Built:
    """Draw every client in every round; `sort` is completion, cluster, device or client."""
    codes, words = unpacked(payload["codes"]), payload["words"]
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
    tick_names = [str(payload["client"][order[at]]) for at in ticks]
    return [heat, *_keys([words[code] for code in np.unique(codes)])], {
        "height": max(300, min(640, 120 + 16 * clients)),
        "showlegend": True,
        "xaxis": {"title": "round", "showgrid": False},
        "yaxis": {
            **{"title": f"client, by {choice['sort']}", "range": [clients - 0.5, -0.5], "showgrid": False},
            **{"tickvals": ticks, "ticktext": tick_names},
        },
    }


def _keys(words: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a legend for traces that have none of their own: empty traces, one a word."""
    return [
        {
            **{"type": "scatter", "mode": "markers", "x": [None], "y": [None], "name": word["text"]},
            "marker": {"symbol": "square", "size": 11, "color": word["colour"]},
        }
        for word in words
    ]


#: A figure in a notebook is about this wide; the page measures.
_WIDTH_PX = 900


def film(payload: Mapping[str, Any], choice: Mapping[str, Any]) -> Built:
    """Draw every device as a tile in one round; plugged-in ones have a ring."""
    at = choice["round"]
    codes, charging, level = (unpacked(payload[key])[at] for key in ("codes", "charging", "level"))
    words, count = payload["words"], len(codes)
    across = max(1, min(count, math.ceil(math.sqrt(count * _WIDTH_PX / 260))))
    down = math.ceil(count / across)
    size = max(7.0, min(34.0, 0.8 * (_WIDTH_PX - 40) / across))
    places = np.arange(count)
    about = [
        f"<b>client {payload['client'][i]}</b> · {plot_text(payload['device'][i])}<br>{words[codes[i]]['text']}"
        + (", plugged in" if charging[i] else "")
        + (f"<br>battery {level[i]} %" if level[i] <= 100 else "")
        for i in places
    ]
    tiles = {
        **{"type": "scatter", "mode": "markers" + ("+text" if size >= 24 else ""), "showlegend": False},
        **{"x": (places % across).tolist(), "y": (places // across).tolist(), "customdata": about},
        **{"text": [str(client) for client in payload["client"]], "textposition": "bottom center"},
        "textfont": {"size": 11, "color": "@soft"},
        "marker": {
            **{"symbol": "square", "size": size, "color": [words[code]["colour"] for code in codes]},
            "line": {
                "color": ["@ink" if on else "@surface" for on in charging],
                "width": [2 if on else 0 for on in charging],
            },
        },
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    hidden = {"visible": False, "fixedrange": True}
    return [tiles, *_keys([words[code] for code in np.unique(codes)])], {
        "height": max(250, min(620, 110 + down * (size + 30 if size >= 24 else size * 1.3))),
        "showlegend": True,
        "legend": {"y": 0, "yanchor": "top"},
        "xaxis": {**hidden, "range": [-0.7, across - 0.3]},
        "yaxis": {**hidden, "range": [down - 0.3, -0.7]},
    }


def gantt(payload: Mapping[str, Any], choice: Mapping[str, Any]) -> Built:
    """Draw what each client did in one round: download, training, upload, and a cross where it dropped out."""
    begin, end = payload["starts"][choice["round"] : choice["round"] + 2]
    column = {name: unpacked(pack)[begin:end] for name, pack in payload["columns"].items()}
    rows = np.lexsort((np.arange(end - begin), column["end"], column["outcome"]))
    column = {name: values[rows] for name, values in column.items()}
    names = [f"client {client}" for client in column["client"]]
    traces: list[dict[str, Any]] = []
    begins = column["start"].astype(np.float64)
    for phase in ("download", "train", "upload"):
        lasting = np.flatnonzero(column[phase] > 0)
        traces.append(
            {
                **{"type": "bar", "orientation": "h", "name": phase, "marker": {"color": f"@{phase}"}},
                **{"x": column[phase][lasting], "y": lasting, "base": begins[lasting]},
                **{"text": [names[at] for at in lasting], "textposition": "none"},
                "hovertemplate": f"<b>%{{text}}</b><br>{phase} %{{x:.1f}} s, from %{{base:.1f}} s<extra></extra>",
            }
        )
        begins = begins + column[phase]
    dropped = column["outcome"] == 1
    for cause in np.unique(column["cause"][dropped]):
        broken, word = np.flatnonzero(dropped & (column["cause"] == cause)), payload["causes"][cause]
        told = [
            f"{names[at]}</b><br>{word['text']} in {payload['phases'][column['phase'][at]]['text']}, "
            f"{100 * column['progress'][at]:.0f} % of its training done"
            for at in broken
        ]
        traces.append(
            {
                **{"type": "scatter", "mode": "markers", "name": word["text"], "text": told},
                **{"x": column["end"][broken], "y": broken},
                "marker": {"symbol": "x", "size": 6 if len(rows) > 80 else 9, "color": word["colour"]},
                "hovertemplate": "<b>%{text}<br>after %{x:.1f} s<extra></extra>",
            }
        )
    return traces, _gantt_layout(payload, column)


def _gantt_layout(payload: Mapping[str, Any], column: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Lay a round out, with the deadline where it is in sight."""
    count, limit = len(column["client"]), payload["deadline_s"]
    longest = float(column["end"].max(initial=0.0)) or 1.0
    if limit and longest > 0.5 * limit:
        longest = max(longest, limit)
    ticks = list(range(0, count, max(1, math.ceil(count / 30))))
    layout: dict[str, Any] = {
        **{"barmode": "overlay", "bargap": 0.25, "showlegend": True},
        "height": max(300, min(760, 150 + 15 * payload["most"])),
        "xaxis": {"title": "time since the round began (s)", "range": [-0.015 * longest, 1.03 * longest]},
        "yaxis": {
            **{"title": "client", "range": [max(count, 1) - 0.4, -0.6], "showgrid": False},
            **{"tickvals": ticks, "ticktext": [str(column["client"][at]) for at in ticks]},
        },
    }
    if limit and limit <= 1.03 * longest:
        line = {"color": "@ink", "width": 1.4, "dash": "dash"}
        shape = {"type": "line", "x0": limit, "x1": limit, "yref": "paper", "y0": 0, "y1": 1, "line": line}
        said = {"x": limit, "y": 1, "yref": "paper", "yanchor": "bottom", "text": "deadline"}
        layout["shapes"] = [shape]
        layout["annotations"] = [{**said, "showarrow": False, "font": {"size": 12, "color": "@soft"}}]
    if not count:
        said = {"x": 0.5, "y": 0.5, "xref": "paper", "yref": "paper", "showarrow": False}
        layout["annotations"] = [{**said, "text": "no client was selected in this round"}]
    return layout


#: More marks than this become strokes.
_MANY_MARKS = 120


def day(payload: Mapping[str, Any], choice: Mapping[str, Any]) -> Built:
    """Draw battery, link, charger and screen of one device, one above the other, and the rounds it was selected for."""
    device, rows = payload["devices"][choice["device"]], payload["rows"]
    traces: list[dict[str, Any]] = []
    layout: dict[str, Any] = {
        **{"hovermode": "x unified", "showlegend": True, "height": 160 + 110 * len(rows)},
        "xaxis": {
            **{"title": payload["timeTitle"], "anchor": f"y{len(rows)}" if len(rows) > 1 else "y"},
            **{"tickvals": payload["ticks"]["at"], "ticktext": payload["ticks"]["text"]},
            **{"range": payload["span"], "hoverformat": ".2f"},
        },
    }
    for index, row in enumerate(rows):
        axis, words = str(index + 1) if index else "", row.get("words")
        layout[f"yaxis{axis}"] = {"domain": row["domain"], "title": row["title"]} | (
            {
                **{"tickvals": list(range(len(words))), "ticktext": words, "showgrid": False},
                "range": [-0.12, len(words) - 0.7],
            }
            if words
            else {"range": [0, 112], "tickvals": [0, 25, 50, 75, 100]}
        )
        if row["key"] not in device["series"]:
            continue
        series = {name: unpacked(pack) for name, pack in device["series"][row["key"]].items()}
        step, value = row.get("step", False), "%{text}" if words else "%{y:.1f} %"
        traces.append(
            {
                **{"type": "scatter", "mode": "lines+markers" if row.get("points") else "lines"},
                **{"x": series["hours"], "y": series["values"], "yaxis": f"y{axis}", "name": row["name"]},
                **{"showlegend": False, "marker": {"size": 4}},
                "line": {
                    **{"color": row["colour"], "width": 1.4 if step else 2},
                    "shape": "hv" if step else "linear",
                },
                **{"fill": "tozeroy" if step else "none", "fillcolor": f"{row['colour']}/0.22"},
                "text": [words[int(at)] for at in series["values"]] if words else None,
                "hovertemplate": f"{row['name']} <b>{value}</b><extra></extra>",
            }
        )
    many = sum(map(len, device["marks"].values())) > _MANY_MARKS
    for mark in payload["marks"]:
        at, colour = device["marks"][mark["key"]], mark["colour"]
        stroke = {"symbol": "line-ns", "size": 6, "line": {"color": colour, "width": 1}}
        traces.append(
            {
                **{"type": "scatter", "mode": "markers", "name": mark["name"], "cliponaxis": False},
                **{"x": at, "y": [mark["height"]] * len(at)},
                "marker": stroke if many else {"symbol": mark["symbol"], "color": colour, "size": 7},
                "hovertemplate": f"{mark['name']}<extra></extra>",
            }
        )
    return traces, layout
