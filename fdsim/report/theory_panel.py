"""The paper's theory beside the run: bounds as curves, misselection as measured and as bounded, the constants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fdsim.errors import FdsimError
from fdsim.report.curves import Curve, Measure, measure_figure
from fdsim.report.data import RunData
from fdsim.report.figure import Figure, Remark, Table

if TYPE_CHECKING:
    from fdsim.inspect.theory import Theory

#: Above this the constants take longer to estimate than all the rest of the page; `fdsim theory` does it.
_CLIENTS = 300
_TITLE = "The paper's constants, estimated"
_MISSELECTION = {
    "misselection": Measure(
        "misselection", "", "missing clients with a wrong stand-in", "percent", 0.0, 1.04, whole=True
    )
}


def theory_for(data: RunData) -> Theory | Remark:
    """Estimate the constants of the paper's bounds, or says why they cannot be."""
    if data.presence is None:
        return Remark(_TITLE, "There is no trace yet.")
    if data.presence.clients > _CLIENTS:
        return Remark(
            _TITLE,
            f"With more than {_CLIENTS} clients they are left out here; `fdsim theory RUN` estimates them for any run.",
        )
    from fdsim.inspect.theory import theory_of

    try:
        return theory_of(data.run)
    except FdsimError as error:
        return Remark(_TITLE, f"They cannot be estimated: {error}.")


def bound_curves(theory: Theory | Remark) -> list[Curve]:
    """Return α²σ_P² and α²σ_F² as curves over the rounds, where the distances were followed."""
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
        made.append(Curve(name, [table], ("@soft", "dot")))
    return made


def theory_parts(theory: Theory | Remark) -> list[Figure | Table | Remark]:
    """Lay out misselection against the Lemma's bound, and the constants."""
    if isinstance(theory, Remark):
        return [theory]
    base = theory.rounds[["round"]].assign(sim_time_s=0.0, energy_j=0.0)
    curves = [
        Curve(theory.strategy, [base.assign(misselection=theory.rounds["misselection"])], ("@fdms", "solid")),
        Curve(
            "the Lemma's bound",
            [base.assign(misselection=theory.rounds["misselection_bound"])],
            ("@soft", "dot"),
        ),
    ]
    figure = measure_figure(
        (
            "misselection",
            "How often a non-friend stood in, and the bound",
            "Of the missing clients that had a friend active, the share for whom another was chosen; dotted, the "
            "paper's bound on it.",
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
        ("β", found.beta, "least share of rounds in which a pair was active together"),
        (
            "δ_min",
            found.delta_min,
            "least lead of a worst friend over the best non-friend, in mean similarity",
        ),
        ("δ_f", found.delta_f, "widest spread of similarity among one client's friends"),
        ("B_max", found.b_max, "most friends of any client"),
    ]
    return Table(
        key="theory",
        title=_TITLE,
        says=f"What the bounds are made of, from the last snapshot of R of {theory.strategy}. Friends are {theory.friends}.",
        columns=["constant", "estimate", "meaning"],
        prose=True,
        rows=[
            [name, "–" if not np.isfinite(value) else f"{value:.4g}", meaning]
            for name, value, meaning in rows
        ],
        remark="Where β is 0 some pair never met, and the Lemma's bound says nothing: it stays at 100%."
        if found.beta == 0
        else "",
    )
