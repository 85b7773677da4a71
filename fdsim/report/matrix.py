"""Matrices over clients: their order, their blocks of true clusters, and values packed into 16 bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fdsim.report.data import RunData
from fdsim.report.figure import evenly, packed

#: More rows and columns are indistinguishable on a screen.
MOST_CLIENTS = 120
_NULL = 65535


@dataclass(frozen=True)
class Words:
    """What rows, columns and values are called."""

    row: str
    column: str
    value: str
    unit: str
    format: str
    second: str = ""
    """What a second value of each entry is called; none when empty."""
    beside: str = "busiest"
    """What is drawn beside the matrix: the busiest columns, or a histogram of the values."""


def order_by_cluster(data: RunData, clients: int) -> np.ndarray:
    """Order clients by true cluster and keep at most as many as a matrix can show."""
    cluster = data.true_cluster
    order = np.arange(clients) if cluster is None else np.argsort(cluster, kind="stable")
    return np.asarray(order[evenly(clients, MOST_CLIENTS)])


def cluster_blocks(data: RunData, shown: np.ndarray) -> list[dict[str, Any]]:
    """Find where each true cluster begins and ends in a matrix ordered by cluster."""
    if data.true_cluster is None:
        return []
    of = data.true_cluster[shown]
    cuts = np.flatnonzero(np.diff(of)) + 1
    starts, ends = np.concatenate([[0], cuts]), np.concatenate([cuts, [len(of)]]) - 1
    return [
        {"name": f"cluster {of[a]}", "from": int(a), "to": int(b)} for a, b in zip(starts, ends, strict=True)
    ]


def matrix_set(
    name: str, frames: Sequence[tuple[int, np.ndarray, np.ndarray | None]], span: tuple[float, float]
) -> dict[str, Any]:
    """Pack one strategy's frames (round, values, second values); NaN is an empty entry."""
    low, high = span
    step = (high - low) / (_NULL - 1) or 1.0
    made = []
    for round_number, values, second in frames:
        codes = np.where(np.isnan(values), _NULL, np.round((np.nan_to_num(values, nan=low) - low) / step))
        frame = {"round": round_number, "values": packed(codes, "u2")}
        if second is not None:
            frame["second"] = packed(np.minimum(second, _NULL), "u2")
        made.append(frame)
    return {"name": name, "low": low, "step": step, "zmin": low, "zmax": high, "frames": made}


def matrix_payload(
    labels: np.ndarray,
    blocks: list[dict[str, Any]],
    sets: list[dict[str, Any]],
    words: Words,
) -> dict[str, Any]:
    """Return what the page's script draws a matrix from, with a list of strategies to choose from."""
    options = [{"value": one["name"], "text": one["name"]} for one in sets]
    return {
        "labels": [str(int(label)) for label in labels],
        "blocks": blocks,
        "sets": sets,
        "words": asdict(words),
        "controls": [{"key": "set", "label": "strategy", "kind": "select", "options": options}],
    }
