"""What is remembered of clients' updates, at three prices.

- each: every client's last update, K×P numbers;
- half: the same in 16 bits (bfloat16: the range of a float, three digits);
- circles: one update for each circle of friends, the mean of its members in the last round in which any was active.
  Circles are found from the signatures, by k-means that goes on from round to round.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Literal

import numpy as np

from fdsim.errors import InputError
from fdsim.strategies.base import Cohort, Federation, State

if TYPE_CHECKING:
    import torch

Form = Literal["each", "half", "circles"]
#: Fewest and most circles that are looked for. More than there are does no harm, since each then holds part of one;
#: fewer does, since those who are not alike then share a memory.
FEWEST_CIRCLES, MOST_CIRCLES = 32, 256
#: Numbers of remembered updates that are copied at a time.
_COPIED = 2**20


def needed_gb(federation: Federation, form: Form) -> float:
    """Return what a form of memory takes at least, GB."""
    row_gb: float = federation.parameters * federation.dtype.itemsize / 1e9
    if form == "circles":
        return 2 * min(FEWEST_CIRCLES, federation.clients) * row_gb
    return federation.clients * (row_gb if form == "each" else 2 * federation.parameters / 1e9)


def affordable_form(place: str, federation: Federation, wish: str, max_memory_gb: float) -> Form:
    """Return the wished form, or for "auto" the first that fits; raise an InputError when it does not fit."""
    forms: list[Form] = [form for form in ("each", "half", "circles") if wish in (form, "auto")]
    for form in forms:
        if needed_gb(federation, form) <= max_memory_gb:
            return form
    raise InputError(
        f"{place}.max_memory_gb",
        f'remembering updates of {federation.clients} clients (memory = "{forms[-1]}") takes '
        f"{needed_gb(federation, forms[-1]):.3g} GB, more than the {max_memory_gb:g} GB allowed",
        "raise max_memory_gb, or choose a strategy that stores no updates, such as fdms",
    )


def affordable_circles(federation: Federation, max_memory_gb: float) -> int:
    """Return how many circles are looked for: as many as fit, between the fewest and the most."""
    each_gb = 2 * federation.parameters * federation.dtype.itemsize / 1e9
    fit = min(int(max_memory_gb / each_gb), MOST_CIRCLES)
    return min(max(fit, FEWEST_CIRCLES), federation.clients)


def blank_remembered(federation: Federation, form: Form, max_memory_gb: float) -> State:
    """Make a memory before anything was sent."""
    import torch

    circles = form == "circles"
    rows = affordable_circles(federation, max_memory_gb) if circles else federation.clients
    kind = torch.bfloat16 if form == "half" else federation.dtype
    shape = (rows, federation.parameters)
    state: State = {
        "memory": torch.zeros(shape, dtype=kind, device=federation.accelerator),
        "stored_in": np.full(rows, -1, dtype=np.int32),
        "moved": torch.zeros(federation.parameters, dtype=federation.dtype, device=federation.accelerator),
        "direct": federation.direct,
    }
    if circles:
        state |= {
            "incoming": torch.zeros(shape, dtype=kind, device=federation.accelerator),
            "circle": np.full(federation.clients, -1, dtype=np.int32),
            "centre": np.zeros((rows, 0)),
            "members": np.zeros(rows),
        }
    return state


def _rows(state: State, clients: np.ndarray) -> np.ndarray:
    """Return where each client's update is remembered; −1 for nowhere."""
    return np.asarray(state["circle"][clients] if "circle" in state else clients)


def age_of(state: State, clients: np.ndarray, round_index: int) -> np.ndarray:
    """Return how many rounds ago what is remembered of each client was sent; 0 when nothing is."""
    rows = _rows(state, clients)
    sent = np.where(rows >= 0, state["stored_in"][rows], -1)
    return np.where(sent >= 0, round_index - sent, 0)


def recall(state: State, clients: np.ndarray, like: torch.Tensor) -> torch.Tensor:
    """Return what is remembered of clients [C, P], of the type of `like`; anything where nothing is."""
    import torch

    rows = torch.as_tensor(_rows(state, clients), device=like.device)
    found: torch.Tensor = state["memory"][rows]
    return found.to(like.dtype)


def recalled_sum(
    state: State, clients: np.ndarray, factors: np.ndarray, like: torch.Tensor, *, moves: float = 0.0
) -> torch.Tensor | None:
    """Return Σ factorₖ·memoryₖ [P] over clients, and `moves` times the sum of this round's moves m; None for nothing."""
    import torch

    total = np.zeros(len(state["stored_in"]))
    used = factors != 0
    np.add.at(total, _rows(state, clients)[used], factors[used])
    rows = np.flatnonzero(total)
    if not len(rows) and moves == 0.0:
        return None
    memory: torch.Tensor = state["memory"]
    kernel = update_kernel(state, like)
    if kernel is not None:
        summed = torch.zeros_like(like)
        places = np.append(kernel.addresses(memory)[rows], state["moved"].data_ptr())
        kernel.add_weighted_(summed, places, np.append(total[rows], moves))
        return summed
    found: torch.Tensor = moves * state["moved"]
    if memory.dtype == like.dtype and 2 * len(rows) >= len(total):
        return found.addmv_(memory.T, torch.as_tensor(total, dtype=like.dtype, device=like.device))
    # A few rows at a time: fresh memory for a copy of all of them costs more than the sum.
    at_once = max(1, _COPIED // len(like))
    for some in np.split(rows, range(at_once, len(rows), at_once)):
        remembered = memory[torch.as_tensor(some, device=like.device)].to(like.dtype)
        found += torch.as_tensor(total[some], dtype=like.dtype, device=like.device) @ remembered
    return found


def compare_and_remember(
    state: State, cohort: Cohort, clients: np.ndarray, updates: torch.Tensor
) -> torch.Tensor:
    """Take updates [C, P]; return ‖m‖² of their moves m = Δ − remembered, and what the chunk adds to ‖Σ m‖² [C, 2].

    The former means nothing where nothing was remembered; the latter is divided evenly among the chunk's clients.
    """
    import torch

    known = age_of(state, clients, cohort.round_index) > 0
    squares, growth = _compared(state, clients, updates, known)
    if "circle" in state:
        of_active, of_clients = state["circle"][cohort.active], state["circle"][clients]
        circles = np.unique(of_clients[of_clients >= 0])
        count = (of_active == circles[:, None]).sum(axis=1, keepdims=True)
        member = torch.as_tensor(
            (of_clients == circles[:, None]) / count, dtype=updates.dtype, device=updates.device
        )
        state["incoming"][torch.as_tensor(circles, device=updates.device)] += member @ updates
    return torch.stack([squares, (growth / len(clients)).expand(len(clients))], dim=1)


def _compared(
    state: State, clients: np.ndarray, updates: torch.Tensor, known: np.ndarray
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ‖m‖² of each move and by how much ‖Σ m‖² grows; where each client has a row of its own, put updates there."""
    import torch

    memory, moved = state["memory"], state["moved"]
    rows, each = _rows(state, clients), "circle" not in state
    kernel = update_kernel(state, updates)
    if each and kernel is not None:
        updates = updates.contiguous()
        found = kernel.remember(kernel.addresses(updates), kernel.addresses(memory)[rows], known, moved)
        return found[0].to(moved.dtype), found[1].to(moved.dtype)
    square_before = torch.dot(moved, moved)
    move, squares = torch.empty_like(moved), []
    # Row by row, each stays in a CPU's cache while it is compared and overwritten: a third of the time of all at once.
    for row, counts, update in zip(rows.tolist(), known.tolist(), updates, strict=True):
        kept = memory[row]
        torch.sub(update, kept, out=move)
        squares.append(torch.dot(move, move))
        if counts:
            moved += move
        if each:
            kept.copy_(update)
    return torch.stack(squares), torch.dot(moved, moved) - square_before


def update_kernel(state: State, like: torch.Tensor) -> ModuleType | None:
    """Return our own kernel where it is to compute on memories as they are."""
    memory = state["memory"]
    if not state.get("direct") or memory.device.type != "cpu" or memory.dtype != like.dtype:
        return None
    from fdsim.kernels import updates

    return updates if updates.kernel(like.dtype) is not None else None


def settle(state: State, cohort: Cohort) -> None:
    """Close a round: what its clients sent is remembered from now on."""
    import torch

    state["moved"].zero_()
    if "circle" not in state:
        state["stored_in"][cohort.active] = cohort.round_index
        return
    of_active = state["circle"][cohort.active]
    fresh = np.unique(of_active[of_active >= 0])
    rows = torch.as_tensor(fresh, device=state["memory"].device)
    state["memory"][rows] = state["incoming"][rows]
    state["incoming"][rows] = 0.0
    state["stored_in"][fresh] = cohort.round_index
    _regroup(state, cohort.active)


def _regroup(state: State, clients: np.ndarray) -> None:
    """Move the circles' centres towards the signatures of a round's clients, and put these into the nearest."""
    signature = state["signature"][clients].astype(np.float64)
    norms = np.sqrt(np.square(signature).sum(axis=1, keepdims=True))
    signature = np.divide(signature, norms, out=np.zeros_like(signature), where=norms > 0)
    if not state["centre"].size:
        state["centre"] = np.zeros((len(state["stored_in"]), signature.shape[1]))
    centre, members = state["centre"], state["members"]
    likeness = np.where(members > 0, signature @ centre.T, -np.inf)
    nearest = np.where(norms[:, 0] > 0, np.maximum(likeness.max(axis=1), 0.0), np.inf)
    for empty in np.flatnonzero(members == 0):
        # The client that is least like any centre becomes a centre of its own.
        worst = int(nearest.argmin())
        if nearest[worst] > 0.99:
            break
        centre[empty], members[empty] = signature[worst], 1.0
        likeness[:, empty] = signature @ centre[empty]
        nearest = np.maximum(nearest, likeness[:, empty])
    chosen = likeness.argmax(axis=1)
    state["circle"][clients] = np.where(norms[:, 0] > 0, chosen, state["circle"][clients])
    joined = chosen[:, None] == np.arange(len(members))
    members += joined.sum(axis=0)
    moved = joined.T @ signature - joined.sum(axis=0)[:, None] * centre
    centre += moved / np.maximum(members, 1.0)[:, None]
