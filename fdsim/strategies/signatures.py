"""Signatures: what a client's updates have in common, in few numbers, so that friends need never have met.

A client's signature is the running mean of its updates, each centred (minus the mean of its round), sketched to
m numbers and normalised. Friends are clients with similar signatures. K×m numbers take the place of the K×K of R,
and two clients can be compared that were never active together.

How far apart the updates of two clients will be is predicted from their signatures by a line, fitted to the pairs
that were active together: ‖Δᵢ − Δⱼ‖² ≈ scale·(a − b·cos), scale being the mean ‖Δ‖² of late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fdsim.rng import stream
from fdsim.strategies.base import Federation, State

if TYPE_CHECKING:
    import torch

#: Numbers in a signature, when the model has as many.
SIGNATURE_DIM = 128
#: Rounds that a running mean looks back on, about.
_WINDOW = 50
#: Share of what was learnt about the line that fades with each round.
_FADING = 0.1
#: The nearest that two clients are ever expected to be, as a share of the expected distance of strangers.
_NEAREST_FRAC = 0.02


def blank_signatures(federation: Federation) -> State:
    """Make the signatures [K, m] before anybody was seen, and the sketch that is the same all through a run."""
    import torch

    dim = min(SIGNATURE_DIM, federation.parameters)
    rng = stream(federation.seed, "signatures")
    group = -(-federation.parameters // dim)
    places = np.zeros(dim * group, dtype=np.int32)
    signs = np.zeros(dim * group, dtype=np.int8)
    slots = rng.permutation(dim * group)[: federation.parameters]
    places[slots] = np.arange(federation.parameters)
    signs[slots] = rng.integers(0, 2, federation.parameters) * 2 - 1
    return {
        "signature": np.zeros((federation.clients, dim), dtype=np.float32),
        "signed": np.zeros(federation.clients, dtype=np.int32),
        "sketch_places": torch.as_tensor(places, device=federation.accelerator),
        "sketch_signs": torch.as_tensor(signs, device=federation.accelerator),
        "line": np.zeros(5),
        "scale": np.zeros(2),
    }


def sketched(state: State, updates: torch.Tensor) -> torch.Tensor:
    """Sketch updates [C, P] to [C, m]: shuffle, flip signs, add up m groups of equal size."""
    shuffled = updates.index_select(1, state["sketch_places"]).mul_(state["sketch_signs"])
    return shuffled.view(len(updates), state["signature"].shape[1], -1).sum(dim=2)


def likeness(state: State, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return the cosines of signatures [rows, columns]; NaN where either client has none."""
    first, second = (
        _normalised(state["signature"][clients].astype(np.float64)) for clients in (rows, columns)
    )
    known = (state["signed"][rows] > 0)[:, None] & (state["signed"][columns] > 0)[None, :]
    return np.where(known, first @ second.T, np.nan)


def distances(state: State, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return the predicted ‖Δᵢ − Δⱼ‖² [rows, columns]; NaN where nothing is known."""
    count, cosine, distance, cosine_squared, product = state["line"]
    if count <= 0 or state["scale"][1] <= 0:
        return np.full((len(rows), len(columns)), np.nan)
    spread = cosine_squared / count - (cosine / count) ** 2
    slope = 0.0
    if spread > 1e-12:
        slope = max(0.0, -(product / count - cosine * distance / count**2) / spread)
    level = distance / count + slope * cosine / count
    found = np.maximum(level - slope * likeness(state, rows, columns), _NEAREST_FRAC * distance / count)
    return np.asarray(found * state["scale"][0] / state["scale"][1])


def enter_distances(state: State, clients: np.ndarray, apart: np.ndarray, squares: np.ndarray) -> None:
    """Fit the line to a round's ‖Δᵢ − Δⱼ‖² [S, S] and ‖Δ‖² [S], with the signatures as they were before it."""
    scale = squares.mean()
    state["scale"] *= 1 - _FADING
    state["scale"] += (scale, 1.0)
    cosine = likeness(state, clients, clients)
    pairs = np.triu(np.isfinite(cosine) & np.isfinite(apart), 1)
    if pairs.any() and scale > 0:
        x, y = cosine[pairs], apart[pairs] / scale
        state["line"] *= 1 - _FADING
        state["line"] += (len(x), x.sum(), y.sum(), (x * x).sum(), (x * y).sum())


def enter_signatures(state: State, clients: np.ndarray, sketches: np.ndarray) -> None:
    """Take a round's sketches [S, m] into the signatures."""
    centred = _normalised(sketches - sketches.mean(axis=0))
    # A client that is alone in its round differs from nothing: there is no signature to be had.
    told = np.square(centred).sum(axis=1) > 0.5
    who = clients[told]
    state["signed"][who] += 1
    weight = np.minimum(state["signed"][who], _WINDOW)[:, None]
    state["signature"][who] += ((centred[told] - state["signature"][who]) / weight).astype(np.float32)


def _normalised(rows: np.ndarray) -> np.ndarray:
    norms = np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    return np.asarray(np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0))
