"""The mixture of stand-ins that is expected to err least, from the predicted errors of each.

With c the parts of a mixture, Σc = 1, its expected error is cᵀCc, where Cᵢⱼ is what the errors of stand-ins i and j
have in common: for fresh updates ½(dᵢ + dⱼ − Dᵢⱼ), d being their distances to the missing client and D those among
themselves (all squared).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fdsim.strategies.base import MEAN, STORED

Rule = Literal["least", "blend", "best"]
#: The nearest friends that may have a part in a mixture.
FRIENDS = 8
#: What errors have in common counts this much less than estimated: estimates from few meetings are noisy, and a
#: mixture that believes them leans on small differences.
SHRINKAGE = 0.1
#: Only stand-ins whose error is at most so many times the least are mixed. What a poor stand-in adds is alike for all
#: clients that it stands in for, and does not average out as the noise of a good one does.
MIXED_UP_TO = 2.0
#: Up to so many active clients are sorted by distance; the few nearest of more are found sooner one by one.
_SORTED_UP_TO = 64


@dataclass(frozen=True)
class Sources:
    """What could stand in: S active clients, their mean, and what is remembered of each of M missing clients."""

    apart: np.ndarray
    """[M, S] ‖Δ_k − Δᵢ‖² to expect between missing and active clients; NaN where nothing is known."""
    among: np.ndarray
    """[S, S] the same among the active, 0 on the diagonal."""
    remembered: np.ndarray
    """[M] the error to expect of what is remembered; NaN where nothing is, or nobody can tell."""
    mean: np.ndarray
    """[S] weights of the mean of the active."""


@dataclass(frozen=True)
class Substitutes:
    """A mixture for each missing client."""

    parts: np.ndarray
    """[M, S + 1] of each active client's update, and last of what is remembered."""
    main: np.ndarray
    """[M] place of the largest part among the active, or MEAN or STORED."""
    error: np.ndarray
    """[M] expected of the mixture; NaN where nothing is known."""
    main_error: np.ndarray
    """[M] expected of the main part alone."""


def substitutes(sources: Sources, rule: Rule, *, direct: bool = False) -> Substitutes:
    """Return the mixtures that a rule makes of the sources; where nothing is known, the mean of the active.

    Our own kernel makes the same, up to rounding, where it may (`direct`).
    """
    found = _by_kernel(sources, rule) if direct else None
    if found is not None:
        return found
    missing, active = sources.apart.shape
    usual = typical(np.concatenate([sources.apart.ravel(), sources.among[~np.eye(active, dtype=bool)]]))
    near, covariance = _covariances(sources, usual)
    every = np.arange(missing)
    own = np.arange(covariance.shape[1])
    error = covariance[:, own, own].copy()  # [M, n]
    if rule == "least":
        chosen = np.zeros(error.shape)
        chosen[every, np.where(np.isfinite(error), error, np.inf).argmin(axis=1)] = 1.0
    else:
        least = np.where(np.isfinite(error), error, np.inf).min(axis=1, keepdims=True)
        covariance[:, own, own] = np.where(error <= MIXED_UP_TO * least, error, np.nan)
        common = np.where(np.eye(len(own), dtype=bool), 1.0, 1.0 - SHRINKAGE if rule == "best" else 0.0)
        chosen = least_error_parts(covariance * common)
    blank = ~np.isfinite(error).any(axis=1)
    chosen[blank] = own == len(own) - 2  # the mean
    main = chosen.argmax(axis=1)
    count = near.shape[1]
    parts = np.zeros((missing, active + 1))
    np.put_along_axis(parts, near, chosen[:, :count], axis=1)
    parts[:, :-1] += chosen[:, count, None] * sources.mean
    parts[:, -1] = chosen[:, count + 1]
    known = np.where(np.isfinite(covariance), covariance, 0.0)
    place = near[every, np.minimum(main, count - 1)]
    return Substitutes(
        parts=parts,
        main=np.where(main < count, place, np.where(main == count, MEAN, STORED)),
        error=np.where(blank, np.nan, np.einsum("mi,mij,mj->m", chosen, known, chosen)),
        main_error=error[every, main],
    )


def _by_kernel(sources: Sources, rule: Rule) -> Substitutes | None:
    """Return what our own kernel makes of the sources; None where it cannot."""
    from fdsim.kernels.mixtures import MixtureTask, mixtures

    missing, active = sources.apart.shape
    common = 1.0 - SHRINKAGE if rule == "best" else 0.0
    task = MixtureTask(missing, active, FRIENDS, rule == "least", common, MIXED_UP_TO)
    made = mixtures(task, sources.apart, sources.among, sources.remembered, sources.mean)
    if made is None:
        return None
    main = np.where(made.largest < active, made.largest, np.where(made.largest == active, MEAN, STORED))
    return Substitutes(made.parts, main, made.error, made.largest_error)


def _covariances(sources: Sources, usual: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest active clients [M, q], and what errors of theirs, the mean and memory share [M, q+2, q+2]."""
    missing, active = sources.apart.shape
    count = min(FRIENDS, active)
    unmet = np.isnan(sources.apart)
    near = _nearest(np.where(unmet, np.inf, sources.apart), count)
    # A stranger stands in only as one of all; for their mean it is taken to be as far away as clients usually are.
    filled = np.where(unmet, usual, sources.apart)
    among = np.where(np.isnan(sources.among), usual, sources.among)
    to_mean = among @ sources.mean
    inner = 0.5 * sources.mean @ to_mean
    error = np.concatenate(
        [
            np.take_along_axis(sources.apart, near, axis=1),
            # Estimates of few meetings may contradict each other, but the mean is no better than twice the nearest.
            np.maximum(filled @ sources.mean - inner, 0.5 * filled.min(axis=1, initial=np.inf))[:, None],
            sources.remembered[:, None],
        ],
        axis=1,
    )
    fresh = np.zeros((missing, count + 1, count + 1))
    fresh[:, :count, :count] = among[near[:, :, None], near[:, None, :]]
    fresh[:, :count, count] = fresh[:, count, :count] = (to_mean - inner)[near]
    covariance = np.empty((missing, count + 2, count + 2))
    covariance[:, :-1, :-1] = 0.5 * (error[:, :-1, None] + error[:, None, :-1] - fresh)
    # Memory and fresh updates err independently, but for the noise of the client's own update that both lack: at most
    # half of the least error, which is a difference of two noisy updates.
    least = np.where(np.isnan(error), np.inf, error).min(axis=1, keepdims=True)
    covariance[:, -1, :] = covariance[:, :, -1] = np.where(np.isinf(least), np.nan, 0.5 * least)
    covariance[:, -1, -1] = sources.remembered
    return near, covariance


def _nearest(apart: np.ndarray, count: int) -> np.ndarray:
    """Return the `count` least of each row [M, count], the least first; of equals the first."""
    if apart.shape[1] <= _SORTED_UP_TO:
        return np.argsort(apart, axis=1, kind="stable")[:, :count]
    # Strangers remain before those that are taken already.
    left = np.where(np.isinf(apart), np.finfo(np.float64).max, apart)
    near = np.empty((len(apart), count), dtype=np.int64)
    every = np.arange(len(apart))
    for place in range(count):
        near[:, place] = left.argmin(axis=1)
        left[every, near[:, place]] = np.inf
    return near


def spread(among: np.ndarray, weight: np.ndarray, evenness: float) -> tuple[np.ndarray, float]:
    """Return parts [n] of known clients that represent a client of whom nothing is known, and their expected error.

    Between the clients' own weights and the mixture that would err least if it were equally far from all of
    them, in which a circle counts once, however many of it are known. As in the rule of succession the latter
    counts as `evenness` more clients for each circle.
    """
    every = np.eye(len(among), dtype=bool)
    usual = typical(among[~every])
    if np.isnan(usual) or usual <= 0:
        return weight, np.nan
    among = np.where(np.isnan(among), usual, among)
    farthest = among.max()
    covariance = np.where(every, farthest, (1.0 - SHRINKAGE) * (farthest - 0.5 * among))
    even = least_error_parts(covariance[None])[0]
    circles = 1.0 / (even @ (1.0 - among / farthest) @ even)
    share = evenness * circles / (len(weight) + evenness * circles)
    parts = share * even + (1.0 - share) * weight
    return parts, float(usual - 0.5 * parts @ among @ parts)


def typical(distances: np.ndarray) -> float:
    """Return the mean of the distances that are known; NaN when none is."""
    known = distances[np.isfinite(distances)]
    return float(known.mean()) if len(known) else np.nan


def least_error_parts(covariance: np.ndarray) -> np.ndarray:
    """Return, from the error covariances [M, n, n] of n sources, the mixtures [M, n] of least expected error.

    Minimises cᵀCc over Σc = 1, c ≥ 0: solves for the best parts, drops the sources that would get a negative
    one, and solves again until there are none. A source whose own error is NaN has no part. Where estimates contradict
    each other so much that every part would be negative, the source of least error has all.
    """
    count = covariance.shape[1]
    own = np.arange(count)
    usable = np.isfinite(covariance[:, own, own])
    known = np.where(np.isfinite(covariance), covariance, 0.0)
    # Identical sources would make the system singular; a trace of error of their own makes them share.
    known[:, own, own] += 1e-9 * known[:, own, own].max(axis=1, keepdims=True, initial=0.0) + 1e-300
    parts = np.zeros(covariance.shape[:2])
    unsolved = np.arange(len(parts))
    while len(unsolved):
        taking = usable[unsolved]
        system = np.where(taking[:, :, None] & taking[:, None, :], known[unsolved], 0.0)
        system[:, own, own] += ~taking
        found = np.linalg.solve(system, taking[:, :, None].astype(np.float64))[:, :, 0] * taking
        total = found.sum(axis=1, keepdims=True)
        parts[unsolved] = found = found / np.where(total > 0, total, 1.0)
        # Each time at least one source less: at the latest with a single one there is no negative part.
        negative = (found < 0).any(axis=1)
        usable[unsolved] = taking & (found >= 0)
        unsolved = unsolved[negative]
    alone = (parts == 0).all(axis=1) & np.isfinite(covariance[:, own, own]).any(axis=1)
    if alone.any():
        error = np.where(np.isfinite(covariance[:, own, own]), covariance[:, own, own], np.inf)
        parts[alone] = own == error[alone].argmin(axis=1)[:, None]
    return parts
