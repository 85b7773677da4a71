"""The paper's theory beside the run: bounds as curves, misselection measured and bounded, the constants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fdsim.errors import FdsimError
from fdsim.report.curves import PlottedCurve, YAxis, measure_figure
from fdsim.report.data import RunData
from fdsim.report.figure import Figure, Remark, Table

if TYPE_CHECKING:
    from fdsim.inspect.theory import Theory

#: With more clients the constants take longer than the rest of the page; `fdsim theory` estimates them.
_CLIENTS = 300
_TITLE = "The paper's constants, estimated"
_MISSELECTION = {
    "misselection": YAxis(
        "misselection", "", "missing clients with a wrong stand-in", "percent", 0.0, 1.04, whole=True
    )
}


def theory_for(data: RunData) -> Theory | Remark:
    """Estimate the constants of the paper's bounds, or return the reason why not."""
    if data.outcomes is None:
        return Remark(_TITLE, "There is no trace yet.")
    if data.outcomes.clients > _CLIENTS:
        return Remark(
            _TITLE,
            f"With more than {_CLIENTS} clients they are omitted here; `fdsim theory RUN` estimates them for any run.",
        )
    from fdsim.inspect.theory import theory_of

    try:
        return theory_of(data.run)
    except FdsimError as error:
        return Remark(_TITLE, f"They cannot be estimated: {error}.")


def bound_curves(theory: Theory | Remark) -> list[PlottedCurve]:
    """Return α²σ_P² and α²σ_F² as curves over the rounds, where distances were recorded."""
    if isinstance(theory, Remark):
        return []
    known = {
        "any stand-in, α²σ_P²": theory.constants.sigma_p2,
        "true friends, α²σ_F²": theory.constants.sigma_f2,
    }
    made = []
    for name, sigma2 in known.items():
        if not (np.isfinite(sigma2) and sigma2 > 0):
            continue
        missing = theory.rounds["missing_frac"]
        table = theory.rounds[["round"]].assign(
            substitution_error=(missing**2 * sigma2).where(missing > 0), sim_time_s=0.0, energy_j=0.0
        )
        made.append(PlottedCurve(name, [table], ("@soft", "dot")))
    return made


def theory_parts(theory: Theory | Remark) -> list[Figure | Table | Remark]:
    """Lay out misselection against the Lemma's bound, and the constants."""
    if isinstance(theory, Remark):
        return [theory]
    base = theory.rounds[["round"]].assign(sim_time_s=0.0, energy_j=0.0)
    curves = [
        PlottedCurve(
            theory.strategy, [base.assign(misselection=theory.rounds["misselection"])], ("@fdms", "solid")
        ),
        PlottedCurve(
            "the Lemma's bound",
            [base.assign(misselection=theory.rounds["misselection_bound"])],
            ("@soft", "dot"),
        ),
    ]
    figure = measure_figure(
        (
            "misselection",
            "How often a non-friend stood in, and the bound",
            "The fraction of missing clients with an active friend for which a non-friend was chosen; dotted, the "
            "paper's bound.",
        ),
        curves,
        _MISSELECTION,
        smooth=max(1, len(base) // 40),
    )
    return [*([figure] if figure is not None else []), _constants(theory)]


def _constants(theory: Theory) -> Table:
    found = theory.constants
    rows = [
        ("σ_P²", found.sigma_p2, "largest mean squared distance of two clients' updates"),
        ("σ_F²", found.sigma_f2, "the same among friends"),
        ("β", found.beta, "smallest fraction of rounds in which a pair was active together"),
        (
            "δ_min",
            found.delta_min,
            "smallest margin of a client's worst friend over its best non-friend, in mean similarity",
        ),
        ("δ_f", found.delta_f, "largest spread of similarity among one client's friends"),
        ("B_max", found.b_max, "largest number of friends of a client"),
    ]
    return Table(
        key="theory",
        title=_TITLE,
        says=f"The inputs of the bounds, from the last snapshot of R of {theory.strategy}. Friends are {theory.friends}.",
        columns=["constant", "estimate", "meaning"],
        prose=True,
        rows=[
            [name, "–" if not np.isfinite(value) else f"{value:.4g}", meaning]
            for name, value, meaning in rows
        ],
        remark="β is 0: some pair was never active together, so the Lemma's bound is vacuous (100%)."
        if found.beta == 0
        else "",
    )
