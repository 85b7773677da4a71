"""R, the similarity of the clients' updates, snapshot by snapshot, with the true clusters marked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow.compute as pc

from fdsim.report.data import RunData
from fdsim.report.figure import Figure, Remark, evenly
from fdsim.report.matrix import Words, cluster_blocks, matrix_payload, matrix_set, order_by_cluster
from fdsim.telemetry.parts import Part, part_paths
from fdsim.telemetry.strategy_log import partition

_FRAMES = 24
_WORDS = Words(
    "client", "and client", "similarity", "similarity R", ".3f", second="rounds together", beside="histogram"
)
_COLUMNS = ("round", "first", "second", "similarity", "meetings")


def similarity_figure(data: RunData) -> Figure | Remark:
    """Draw R after each snapshot, with the true clusters marked."""
    title = "How similar the clients' updates are"
    if data.outcomes is None:
        return Remark(title, "There is no trace yet.")
    clients = data.outcomes.clients
    shown = order_by_cluster(data, clients)
    sets = [found for label in data.strategies if (found := _snapshots(data, label, clients, shown))]
    if not sets:
        return Remark(title, "No strategy of this run compared clients, or no snapshot of R was recorded.")
    blocks = cluster_blocks(data, shown)
    marked = " Frames mark the true clusters; friends show as dark blocks inside them." if blocks else ""
    remark = ""
    if len(shown) < clients:
        remark = f"{len(shown)} of {clients:,} clients are shown, evenly spaced in order of cluster."
    payload = matrix_payload(shown, blocks, sets, _WORDS)
    longest = max((found["frames"] for found in sets), key=len)
    payload["controls"].append(
        {
            "key": "frame",
            "label": "after round",
            "kind": "slider",
            "start": len(longest) - 1,
            "options": [{"value": i, "text": str(frame["round"])} for i, frame in enumerate(longest)],
        }
    )
    return Figure(
        key="similarity",
        title=title,
        says=f"R, the mean similarity of two clients' updates over the rounds in which both were active.{marked}",
        builder="matrix",
        payload=payload,
        remark=remark,
    )


def _snapshots(data: RunData, label: str, clients: int, shown: np.ndarray) -> dict[str, Any] | None:
    """Read a strategy's snapshots of R, only the rounds and pairs that will be drawn."""
    paths = part_paths(data.run.path / "similarity" / partition(label))
    rounds = [Part(path).read(["round"])["round"].to_numpy() for path in paths]
    there = np.unique(np.concatenate(rounds)) if rounds else np.empty(0, dtype=np.int64)
    if not len(there):
        return None
    kept = there[evenly(len(there), _FRAMES)]
    place = np.full(clients, -1)
    place[shown] = np.arange(len(shown))
    size = (len(kept), len(shown), len(shown))
    values, meetings = np.full(size, np.nan), np.zeros(size, dtype=np.int64)
    for path, present in zip(paths, rounds, strict=True):
        wanted = np.intersect1d(present, kept)
        if not len(wanted):
            continue
        table = Part(path).read(list(_COLUMNS), pc.field("round").isin(wanted.tolist()))
        round_index, first, second, similarity, met = (table[name].to_numpy() for name in _COLUMNS)
        a, b = place[first], place[second]
        drawn = (a >= 0) & (b >= 0)
        frame, a, b = np.searchsorted(kept, round_index[drawn]), a[drawn], b[drawn]
        for rows, columns in ((a, b), (b, a)):
            values[frame, rows, columns] = similarity[drawn]
            meetings[frame, rows, columns] = met[drawn]
    if not np.isfinite(values).any():
        return None
    frames = [(int(r) + 1, values[i], meetings[i]) for i, r in enumerate(kept)]
    return matrix_set(label, frames, (float(np.nanmin(values)), float(np.nanmax(values))))
