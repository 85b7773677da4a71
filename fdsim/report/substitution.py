"""The cost of substitution: its error against the bounds, and the pairs compared with and without candidate sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fdsim.report.curves import PlottedCurve, YAxis, measure_figure
from fdsim.report.figure import Figure, Remark

_ERROR = {
    "error": YAxis("substitution_error", "Error", "‖eₜ‖², aggregate substitution error", log=True, floor=None)
}
_PAIRS = {
    "total": YAxis("pairs_total", "Pairs so far", "pairs of clients compared so far"),
    "round": YAxis("pairs_computed", "Pairs in the round", "pairs of clients compared in the round"),
    "candidates": YAxis(
        "candidates_frac", "Candidates left", "pairs still in the candidate sets", "percent", 0.0, 1.02
    ),
}


def error_figure(
    curves: Sequence[PlottedCurve], bounds: Sequence[PlottedCurve], rounds: int
) -> Figure | Remark:
    """Draw each strategy's substitution error beside the curves `bounds`."""
    title = "Substitution error per strategy against the bounds"
    says = (
        "Distance of the blended update from the one with no client missing. A strategy without error, such as "
        "full, cannot be shown on the logarithmic axis."
    )
    if bounds:
        says += " Dotted: the paper's bounds, with constants from this run and each round's fraction of missing clients."
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
        "Not measured: set `counterfactual = true` under [telemetry] to train the missing clients too, for measurement only.",
    )


def pairs_figure(curves: Sequence[PlottedCurve]) -> Figure | Remark:
    """Draw how many similarities were computed, beside the number of all active pairs."""
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
        shown.append(PlottedCurve("every active pair", every, ("@full", "dot"), case))
    about = (
        "pairs",
        title,
        "How many pairs of clients had their similarity computed; candidate sets save the difference to the dotted line.",
    )
    return measure_figure(about, shown, _PAIRS) or Remark(title, "No round has been recorded yet.")
