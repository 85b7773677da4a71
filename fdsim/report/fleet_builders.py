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
