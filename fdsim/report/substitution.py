"""What substitution costs: the error against its bounds, and the pairs compared with and without candidate sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fdsim.report.curves import Curve, Measure, measure_figure
from fdsim.report.figure import Figure, Remark

_ERROR = {
    "error": Measure(
        "substitution_error", "Error", "‖eₜ‖², aggregate substitution error", log=True, floor=None
    )
}
_PAIRS = {
    "total": Measure("pairs_total", "Pairs so far", "pairs of clients compared so far"),
    "round": Measure("pairs_computed", "Pairs in the round", "pairs of clients compared in the round"),
    "candidates": Measure(
        "candidates_frac", "Candidates left", "pairs still in the candidate sets", "percent", 0.0, 1.02
    ),
}


def error_figure(curves: Sequence[Curve], bounds: Sequence[Curve], rounds: int) -> Figure | Remark:
    """Draw each strategy's substitution error; `bounds` are the curves to hold it against."""
    title = "Substitution error per strategy against the bounds"
    says = (
        "How far the blended update was from the one that nobody missing would have given. A strategy that makes "
        "no error, such as full, has no place on the logarithmic axis."
    )
    if bounds:
        says += " Dotted: the paper's bounds, with constants estimated from this run and each round's share of missing."
    measured = [
        curve for curve in curves if any(table["substitution_error"].notna().any() for table in curve.seeds)
    ]
    figure = measure_figure(
        ("substitution-error", title, says),
        [*measured, *bounds] if measured else [],
        _ERROR,
        smooth=max(1, rounds // 40),
    )
    return figure or Remark(
        title,
        "It was not measured: set `counterfactual = true` under [telemetry] to train the missing clients off the books.",
    )


def pairs_figure(curves: Sequence[Curve]) -> Figure | Remark:
    """Draw how many similarities were computed, beside all there are between active clients."""
    title = "Pairs compared, with and without candidate sets"
    comparing = [
        curve for curve in curves if any((table["pairs_computed"] > 0).any() for table in curve.seeds)
    ]
    if not comparing:
        return Remark(title, "No strategy of this run compares clients.")
    shown = []
    for case in dict.fromkeys(curve.case for curve in comparing):
        own = [curve for curve in comparing if curve.case == case]
        every = []
        for table in own[0].seeds:
            active = table["clients_active"].astype("int64")
            pairs = active * (active - 1) // 2
            every.append(
                table[["round", "sim_time_s", "energy_j"]].assign(
                    pairs_computed=pairs, pairs_total=pairs.cumsum()
                )
            )
        for curve in own:
            totals = [table.assign(pairs_total=table["pairs_computed"].cumsum()) for table in curve.seeds]
            shown.append(replace(curve, seeds=totals))
        shown.append(Curve("every active pair", every, ("@full", "dot"), case))
    about = (
        "pairs",
        title,
        "How many pairs of clients had their similarity computed; candidate sets save what lies below the dotted line.",
    )
    return measure_figure(about, shown, _PAIRS) or Remark(title, "No round was recorded yet.")
