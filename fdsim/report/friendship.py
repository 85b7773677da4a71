"""Who stood in for whom, and whether friends were active and were found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from fdsim.report.curves import PlottedCurve, YAxis, measure_figure
from fdsim.report.data import RunData
from fdsim.report.figure import Figure, Remark
from fdsim.report.matrix import (
    MOST_CLIENTS,
    Words,
    cluster_blocks,
    matrix_payload,
    matrix_set,
    order_by_cluster,
)
from fdsim.telemetry.parts import Part, part_paths
from fdsim.telemetry.strategy_log import partition

if TYPE_CHECKING:
    import pandas as pd

_BY_CLIENT = Words("missing client", "stand-in", "times", "times", "d")
_BY_CLUSTER = Words("missing cluster", "stand-in cluster", "times", "times", "d")


def _fraction(column: str, tab: str, title: str) -> YAxis:
    return YAxis(column, tab, title, "percent", 0.0, 1.04, whole=True)


_MEASURES = {
    "hit": _fraction(
        "friend_hit_frac", "A true friend was chosen", "missing clients with a friend as stand-in"
    ),
    "present": _fraction(
        "friend_present_frac", "A true friend was active", "missing clients with a friend active"
    ),
    "fallback": _fraction("fallback_frac", "No stand-in was found", "missing clients without a stand-in"),
    "agreement": YAxis(
        "cluster_agreement",
        "R's clusters match the true ones",
        "adjusted Rand index",
        floor=None,
        ceiling=1.02,
    ),
    "stable": _fraction(
        "friend_stable_frac", "The last stand-in was kept", "missing clients that kept theirs"
    ),
    "updates": YAxis("effective_updates", "Distinct updates", "effective number of distinct updates"),
    "most": YAxis("stand_ins_max", "The busiest stand-in", "missing clients one client stood in for"),
}


def stand_ins_figure(data: RunData) -> Figure | Remark:
    """Draw who stood in for whom, by client in small runs and by cluster in large ones."""
    title = "Who stood in for whom"
    if data.outcomes is None:
        return Remark(title, "There is no trace yet.")
    clients, cluster = data.outcomes.clients, data.true_cluster
    pairs = {label: _stand_ins(data, label) for label in data.strategies}
    pairs = {label: found for label, found in pairs.items() if len(found)}
    if not pairs:
        return Remark(
            title,
            "No strategy of this run lets one client stand in for another, or clients were not recorded.",
        )
    says = "How often the update of one client (column) was used in place of a missing one (row)."
    words, blocks, remark = _BY_CLIENT, list[dict[str, Any]](), ""
    place = np.full(clients, -1)
    if clients > MOST_CLIENTS and cluster is not None and len(np.unique(cluster)) <= MOST_CLIENTS:
        labels, place = np.unique(cluster, return_inverse=True)
        words = _BY_CLUSTER
        remark = f"{clients:,} clients are too many for a matrix; counts are summed by true cluster."
    elif clients > MOST_CLIENTS:
        busy = sum(np.bincount(found.ravel(), minlength=clients) for found in pairs.values())
        labels = np.sort(np.argsort(-np.asarray(busy), kind="stable")[:MOST_CLIENTS])
        place[labels] = np.arange(len(labels))
        remark = (
            f"The {MOST_CLIENTS} of {clients:,} clients that were missing or stood in most often are shown."
        )
    else:
        labels = order_by_cluster(data, clients)
        place[labels] = np.arange(len(labels))
        blocks = cluster_blocks(data, labels)
        says += " Inside a frame the stand-in is of the same true cluster." if blocks else ""
    counted = {label: _counts(place[found], len(labels)) for label, found in pairs.items()}
    sets = [
        matrix_set(label, [(0, np.where(counts > 0, counts, np.nan), None)], (0.0, float(counts.max())))
        for label, counts in counted.items()
    ]
    return Figure(
        "stand-ins", title, says, "matrix", matrix_payload(labels, blocks, sets, words), remark=remark
    )


def _stand_ins(data: RunData, label: str) -> np.ndarray:
    """Return every missing client and its stand-in [n, 2], reading only the rows that have a stand-in."""
    found = [np.empty((0, 2), dtype=np.int64)]
    for path in part_paths(data.run.path / "clients" / partition(label)):
        table = Part(path).read(["client", "stand_in"], pc.field("stand_in") >= 0)
        found.append(np.column_stack([table["client"].to_numpy(), table["stand_in"].to_numpy()]))
    return np.concatenate(found)


def _counts(places: np.ndarray, size: int) -> np.ndarray:
    """Count [missing, stand-in] by their places in the matrix; −1 is not in it."""
    counts = np.zeros((size, size), dtype=np.int64)
    shown = places[(places >= 0).all(axis=1)]
    np.add.at(counts, (shown[:, 0], shown[:, 1]), 1)
    return counts


def friends_figure(curves: Sequence[PlottedCurve], rounds: int) -> Figure | Remark:
    """Draw whether friends were active and found, over the rounds."""
    about = (
        "friends",
        "Were friends active, and were they found?",
        "For the clients missing from a round: was a client of the same true cluster active, and was one chosen.",
    )
    befriending = [
        curve for curve in curves if any(table["stand_ins_max"].notna().any() for table in curve.seeds)
    ]
    figure = measure_figure(about, befriending, _MEASURES, smooth=max(1, rounds // 20))
    if figure is None:
        return Remark(about[1], "No strategy of this run looks for friends.")
    return replace(figure, remark=_about_memory(befriending))


def _about_memory(curves: Sequence[PlottedCurve]) -> str:
    """Say which strategies also let what they remember of a client represent it; few friends are chosen then."""
    remember = dict.fromkeys(
        curve.strategy for curve in curves if any(_recalled(table) for table in curve.seeds)
    )
    if not remember:
        return ""
    return (
        f"{' and '.join(remember)} may also represent a client by what it remembers of it, and does where that is "
        "expected to err less: then no friend is chosen, though one may be active."
    )


def _recalled(table: pd.DataFrame) -> bool:
    """Tell whether in some round clients were missing, nobody stood in, and yet they did not all fall back."""
    return bool(((table["stand_ins_max"] == 0) & (table["fallback_frac"] < 1)).any())
