"""Whether a strategy's answers are what they should be; errors name the strategy, its file and the hook."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from fdsim.errors import RunError
from fdsim.strategies.base import (
    LEFT_OUT,
    MEAN,
    ZERO,
    Blend,
    Cohort,
    MisfitError,
    State,
    Strategy,
    renormalised,
    where_defined,
)

#: Weights may be in single precision.
_RTOL, _ATOL = 1e-4, 1e-9


def blend_of(strategy: Strategy, state: State, cohort: Cohort) -> Blend:
    """Return a strategy's blend for a cohort, checked."""
    try:
        blend = strategy.blend(state, cohort)
    except MisfitError as error:
        raise misfit(strategy, "blend", f"{error} (round {cohort.round_index})") from error
    check_blend(strategy, cohort, blend)
    return blend


def check_state(strategy: Strategy, hook: str, state: Any) -> State:
    """Return what a hook returned as the strategy's state, or raise an error when it is none."""
    if not isinstance(state, dict):
        told = f"returned a {type(state).__name__} and not a dict"
        raise misfit(strategy, hook, f"{told}. Return the state, an empty dict for none")
    return state


def check_blend(strategy: Strategy, cohort: Cohort, blend: Blend) -> None:
    """Raise an error that names strategy, file and shape when a blend does not fit its cohort."""
    active, missing, when = len(cohort.active), len(cohort.missing), f"(round {cohort.round_index})"
    if not isinstance(blend, Blend):
        raise misfit(strategy, "blend", f"returned a {type(blend).__name__} and not a Blend")
    for name, wanted, per in (
        ("weights", active, "active client"),
        ("stand_in", missing, "missing client"),
        ("similarity", missing, "missing client"),
    ):
        shape = np.shape(getattr(blend, name))
        if shape != (wanted,):
            told = f"{name} has shape {list(shape)}, one number per {per} would be [{wanted}]"
            raise misfit(strategy, "blend", f"{told} {when}")
    if not callable(blend.correction):
        check_correction(strategy, cohort, blend.correction)
    if not np.isfinite(blend.weights).all():
        raise misfit(strategy, "blend", f"weights are not all finite {when}")
    stand_in = np.asarray(blend.stand_in)
    found = stand_in[stand_in >= 0]
    # Clients ascend. (np.isin and np.isclose would take longer than the blend of a few clients itself.)
    place = np.minimum(np.searchsorted(cohort.active, found), active - 1)
    strangers = found[cohort.active[place] != found]
    if len(strangers):
        raise misfit(strategy, "blend", f"client {int(strangers[0])} stands in but is not active {when}")
    told = _disagreement(cohort, blend)
    if told:
        remedy = "`substituted` and `renormalised` work the weights out; `mixture` says what no code says"
        raise misfit(strategy, "blend", f"{told} {when}. {remedy}")


def correction_of(strategy: Strategy, cohort: Cohort, blend: Blend) -> Tensor | None:
    """Return what a blend adds to the weighted sum, now that all received updates have been stored."""
    if not callable(blend.correction):
        return blend.correction
    found = blend.correction()
    check_correction(strategy, cohort, found)
    return found


def check_correction(strategy: Strategy, cohort: Cohort, correction: Tensor | None) -> None:
    """Raise an error when a correction does not have the parameters' shape."""
    if correction is not None and correction.shape != cohort.params.shape:
        told = (
            f"correction has shape {list(correction.shape)}, the parameters have {list(cohort.params.shape)}"
        )
        raise misfit(strategy, "blend", f"{told} (round {cohort.round_index})")


def _disagreement(cohort: Cohort, blend: Blend) -> str:
    """Say how weights differ from what the stand-ins put on them; nothing where more than stand-ins decide."""
    stand_in, weights = np.asarray(blend.stand_in), np.asarray(blend.weights)
    if blend.mixture is not None or blend.correction is not None:
        return ""
    plain = (stand_in >= ZERO) | (stand_in == LEFT_OUT)  # MEAN lies above ZERO
    if not plain.all() or cohort.client_weight[cohort.active].sum() <= 0:
        return ""
    implied = _implied_weights(cohort, stand_in)
    if _differ(weights.sum(), implied.sum()):
        return f"weights sum to {weights.sum():.6g}, with these stand-ins to {implied.sum():.6g}"
    if not len(stand_in) or (stand_in == LEFT_OUT).any():
        # An average over all, or over the others, that nobody stands in for, may be one of the strategy's own.
        negative = np.flatnonzero(weights < 0)
        return f"the weight of client {cohort.active[negative[0]]} is negative" if len(negative) else ""
    differ = np.flatnonzero(_differ(weights, implied))
    if not len(differ):
        return ""
    first = differ[0]
    told = f"client {cohort.active[first]} has weight {weights[first]:.6g}"
    return f"{told}, its own and those it stands in for make {implied[first]:.6g}"


def _differ(found: Any, wanted: Any) -> Any:
    return np.abs(found - wanted) > _ATOL + _RTOL * np.abs(wanted)


def _implied_weights(cohort: Cohort, stand_in: np.ndarray) -> np.ndarray:
    """Return the weights [S] that follow from clients, MEAN, ZERO and LEFT_OUT as stand-ins."""
    weight = cohort.client_weight[cohort.missing]
    found = stand_in >= 0
    implied = cohort.client_weight[cohort.active].astype(np.float64)
    np.add.at(implied, np.searchsorted(cohort.active, stand_in[found]), weight[found])
    implied += weight[stand_in == MEAN].sum() * renormalised(cohort)
    total = cohort.client_weight.sum()
    return np.asarray(implied * total / (total - weight[stand_in == LEFT_OUT].sum()))


def misfit(strategy: Strategy, hook: str, problem: str) -> RunError:
    """Make the error that says what is wrong with the answer of a strategy's hook."""
    return RunError(f"strategy '{strategy.label}', {where_defined(strategy)}: {hook}: {problem}")
