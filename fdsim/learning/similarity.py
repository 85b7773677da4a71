"""Compares a round's received updates with each other: whole, or as sketches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fdsim.kernels import updates as update_kernel
from fdsim.rng import stream
from fdsim.strategies.base import Federation, UpdateScore

#: Rows multiplied at a time; only the upper triangle of panels is computed.
_PANEL = 50
#: Numbers of each row that a CPU multiplies at a time, when there is more than one panel: so many of all rows fit into
#: a cache. Other accelerators take whole rows, in as few calls as there are panels.
_BLOCK = 8192
#: Groups of a sketch that a CPU turns and adds up one by one.
_SLICES = 256
#: Updates that are sketched may go as they come. Up to so many bytes of them wait until nobody trains any more, so that
#: all cores work on them: the whole round is shorter by 3 % with 200 clients of two local steps.
_HELD_BYTES = 2**28


class Sketch:
    """A seeded count sketch of P numbers to m: flip signs, turn each group of m numbers by a random shift, add the groups up.

    Inner products are kept without bias. Two coordinates meet in a sum with probability at most 1/m, so for
    unit vectors the variance of an inner product is at most 2/m, and by Chebyshev and the union bound a
    cosine of two sketches is within 2ε/(1 − ε) of the true one with probability at least 1 − 6/(m·ε²). A
    fresh sketch each round lets these errors average out in R. Sums are taken in a fixed order, so
    accelerators repeat themselves to the bit. Neighbours stay together: our own kernel reads rows as they lie.
    """

    def __init__(self, federation: Federation, sketch_dim: int, *, round_index: int) -> None:
        rng = stream(federation.seed, "sketch", round_index)
        width, dtype = federation.parameters, federation.dtype
        groups = -(-width // sketch_dim)
        self._dim = sketch_dim
        self._direct = by_kernel(federation)
        self._shifts = rng.integers(0, sketch_dim, groups)
        signs = np.zeros(groups * sketch_dim, dtype=np.int8)
        signs[:width] = rng.integers(0, 2, width, dtype=np.int8) * 2 - 1
        self._in_slices = federation.accelerator.type == "cpu" and groups <= _SLICES
        if self._direct or self._in_slices:
            self._signs = torch.as_tensor(signs[:width]).to(dtype)
            return
        #: [m] of each group: which of its numbers is added to each place; signs in the same order, 0 beyond the end.
        turned = (np.arange(sketch_dim) - self._shifts[:, None]) % sketch_dim
        places = (turned + sketch_dim * np.arange(groups)[:, None]).ravel()
        self._places = torch.as_tensor(np.minimum(places, width - 1), device=federation.accelerator)
        self._signs = torch.as_tensor(signs[places], device=federation.accelerator).to(dtype)

    def of(self, updates: Tensor) -> Tensor:
        """Sketch updates [C, P] to [C, m]."""
        if self._direct:
            rows = updates.to(self._signs.dtype).contiguous()
            return update_kernel.sketches(update_kernel.addresses(rows), self._signs, self._shifts, self._dim)
        if self._in_slices:
            return self._added_up(updates * self._signs)
        turned = updates.index_select(1, self._places).mul_(self._signs)
        return turned.view(len(updates), -1, self._dim).sum(dim=1)

    def _added_up(self, signed: Tensor) -> Tensor:
        """Turn and add up groups one by one: a CPU copies runs of numbers sooner than it looks up single ones."""
        found = signed.new_zeros(len(signed), self._dim)
        for group, shift in zip(torch.split(signed, self._dim, dim=1), self._shifts.tolist(), strict=True):
            before = min(group.shape[1], self._dim - shift)
            found[:, shift : shift + before] += group[:, :before]
            found[:, : group.shape[1] - before] += group[:, before:]
        return found


def by_kernel(federation: Federation) -> bool:
    """Whether our own kernel computes on updates."""
    return (
        federation.direct
        and federation.accelerator.type == "cpu"
        and update_kernel.kernel(federation.dtype) is not None
    )


def _connected_groups(wanted: np.ndarray | None, active: int) -> list[np.ndarray]:
    """Divide S clients into the connected groups of the wanted pairs [S, S]; None wants all pairs."""
    if wanted is None:
        return [np.arange(active)] if active > 1 else []
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    count, label = connected_components(csr_array(wanted), directed=False)
    groups = [np.flatnonzero(label == group) for group in range(count)]
    return [group for group in groups if len(group) > 1]


class UpdateComparer:
    """Holds the updates of one round after the other, [S, P] or sketched [S, m], and multiplies them.

    Rows are laid out group by group, so that each product reads one slice, and a client that is compared with
    nobody takes no row. The buffer is made once and used again: fresh memory costs more than the copy into
    it. Our own kernel, on a CPU, reads the updates where they lie: they are held, not copied.
    """

    def __init__(self, score: UpdateScore, federation: Federation) -> None:
        self._score, self._federation = score, federation
        self._sketch: Sketch | None = None
        self._buffer = torch.empty(0, 0, dtype=federation.dtype, device=federation.accelerator)
        #: Whether our own kernel multiplies.
        self.direct = by_kernel(federation)
        self._held: list[Tensor] = []
        #: Where each of the buffer's rows lies, for the kernel.
        self._address = np.empty(0, dtype=np.uintp)
        #: Positions of active clients; every wanted pair lies inside a group, pairs across are not multiplied.
        self.groups: list[np.ndarray] = []
        #: [S] the buffer's row of each active client; -1 for none.
        self._row = np.empty(0, dtype=np.int64)

    @property
    def whole(self) -> bool:
        """Whether this round's updates are compared as they are."""
        return self._sketch is None

    @property
    def holds_updates(self) -> bool:
        """Whether a round's updates are all there at its end: until they have been multiplied, or since they are few."""
        if not self.direct:
            return False
        held_bytes = len(self._row) * self._federation.parameters * self._federation.dtype.itemsize
        return self.whole or held_bytes <= _HELD_BYTES

    @property
    def pairs(self) -> int:
        """The number of pairs multiplied."""
        return sum(len(group) * (len(group) - 1) // 2 for group in self.groups)

    def begin(self, round_index: int, wanted: np.ndarray | None, active: int) -> None:
        """Make room for a round in which the `wanted` pairs [S, S] of active clients are compared."""
        width, sketch_dim = self._federation.parameters, self._score.sketch_dim
        self._sketch = None
        if sketch_dim is not None and not self._spared(sketch_dim, active):
            self._sketch = Sketch(self._federation, sketch_dim, round_index=round_index)
            width = sketch_dim
        self.groups = _connected_groups(wanted, active)
        layout = np.concatenate([*self.groups, np.empty(0, dtype=np.int64)])
        self._row = np.full(active, -1)
        self._row[layout] = np.arange(len(layout))
        if self.direct:
            self._held.clear()
            self._address = np.zeros(len(layout), dtype=np.uintp)
        elif self._buffer.shape[0] < len(layout) or self._buffer.shape[1] != width:
            self._buffer = self._buffer.new_empty(len(layout), width)

    def _spared(self, sketch_dim: int, active: int) -> bool:
        """Whether so few are active, or the net is so small, that whole updates are compared after all."""
        whole_up_to = self._score.whole_up_to
        small = self._federation.parameters < 4 * sketch_dim
        return whole_up_to is not None and (active <= whole_up_to or small)

    def add(self, positions: np.ndarray, updates: Tensor) -> None:
        """Take a chunk of updates [C, P] for these positions among the active."""
        compared = self._row[positions] >= 0
        if not compared.all():
            # Indices, not a mask: counting a mask's ones would make the host wait for the accelerator.
            updates = updates[torch.as_tensor(np.flatnonzero(compared), device=updates.device)]
        if len(updates):
            self.add_rows(positions[compared], updates if self._sketch is None else self._sketch.of(updates))

    def add_rows(self, positions: np.ndarray, rows: Tensor) -> None:
        """Take what is compared itself: updates, or sketches [C, m] that were made elsewhere."""
        places = self._row[positions]
        if (places < 0).any():
            rows = rows[torch.as_tensor(np.flatnonzero(places >= 0), device=rows.device)]
            places = places[places >= 0]
        if not len(places):
            return
        if self.direct:
            rows = rows.to(self._federation.dtype).contiguous()
            self._held.append(rows)
            self._address[places] = update_kernel.addresses(rows)
        elif (np.diff(places) == 1).all():
            self._buffer[int(places[0]) : int(places[-1]) + 1].copy_(rows)
        else:
            self._buffer[torch.as_tensor(places, device=rows.device)] = rows

    def products(self) -> Tensor:
        """Return the upper triangle of inner products [S, S] inside the groups; zero elsewhere."""
        active = len(self._row)
        if len(self.groups) == 1 and len(self.groups[0]) == active:
            found = self._upper_products(0, active)
        else:
            found, start = self._buffer.new_zeros(active, active), 0
            for group in self.groups:
                chosen = torch.as_tensor(group, device=found.device)
                inside = self._upper_products(start, start + len(group))
                found[chosen.unsqueeze(1), chosen] = inside.to(found.dtype)
                start += len(group)
        self._held.clear()
        return found

    def _upper_products(self, start: int, stop: int) -> Tensor:
        if self.direct:
            if not self._address[start:stop].all():
                raise RuntimeError("an update that is to be compared was never added")
            width = self._held[0].shape[1]
            return update_kernel.upper_products(self._address[start:stop], width, self._federation.dtype)
        return _upper_products(self._buffer[start:stop])


def _upper_products(rows: Tensor) -> Tensor:
    if len(rows) <= _PANEL:
        return torch.mm(rows, rows.T)
    found = rows.new_zeros(len(rows), len(rows))
    width = _BLOCK if rows.device.type == "cpu" else rows.shape[1]
    for left in range(0, rows.shape[1], width):
        block = rows[:, left : left + width]
        for start in range(0, len(rows), _PANEL):
            stop = start + _PANEL
            found[start:stop, start:].addmm_(block[start:stop], block[start:].T)
    return found


@dataclass(frozen=True)
class PairScores:
    """Scores and squared distances [S, S] of a round's pairs; NaN for pairs that were not wanted."""

    scores: np.ndarray
    distances: np.ndarray


def pair_scores(
    products: np.ndarray, wanted: np.ndarray | None, score: UpdateScore, *, learning_rate: float
) -> PairScores:
    """Turn inner products (upper triangle) into scores and squared distances in the paper's units."""
    whole = np.triu(products.astype(np.float64))
    squares = np.diag(whole).copy()
    whole += whole.T
    np.fill_diagonal(whole, squares)
    # Rounding may leave a tiny negative distance between equal updates.
    distances = np.maximum(squares[:, None] + squares[None, :] - 2.0 * whole, 0.0) / learning_rate**2
    if score.metric == "cosine":
        norms = np.sqrt(np.outer(squares, squares))
        # An update of zero has no direction: it is neither like nor unlike another.
        cosines = np.divide(whole, norms, out=np.zeros_like(whole), where=norms > 0)
        scores = 0.5 * (np.clip(cosines, -1.0, 1.0) + 1.0)
    else:
        scores = -np.sqrt(distances)
    unknown = np.eye(len(whole), dtype=bool) if wanted is None else ~wanted
    np.fill_diagonal(unknown, True)
    return PairScores(np.where(unknown, np.nan, scores), np.where(unknown, np.nan, distances))
