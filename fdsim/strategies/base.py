"""What a strategy is: a rule for the updates that are missing, given as a blend of those received.

    global update = Σ weightᵢ·Δᵢ + correction

A strategy never trains, never moves tensors between accelerators and never opens files; the engine does. It
sees a round twice: `blend` before any local training (who stands in for whom is known by then), `after_round` after
it. Strategies import no torch at module level, so that reading a scenario stays quick.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from fdsim.catalogue import Component, PlainName
from fdsim.rng import stream

if TYPE_CHECKING:
    import torch

#: Everything a strategy keeps between rounds: arrays, tensors and numbers, which can be checkpointed.
State = dict[str, Any]

#: Codes in `Blend.stand_in` for what represents a missing client when no single client does.
MEAN = -1
"""The mean of the received updates."""
ZERO = -2
"""Nothing: its part of the update is zero."""
STORED = -3
"""What the strategy has stored for it, see `Strategy.stored`."""
LEFT_OUT = -4
"""It is left out: the average is taken over the others."""
STORED_ON_MEAN = -5
"""What the strategy has stored for it, on top of the mean of the received updates."""


@dataclass(frozen=True)
class Federation:
    """What stays the same all through a run. K clients, T rounds, P parameters."""

    clients: int
    rounds: int
    parameters: int
    seed: int
    client_weight: np.ndarray
    """[K] each client's weight in the average when nobody is missing; sums to 1."""
    true_cluster: np.ndarray | None
    accelerator: Any
    """A torch.device; stored updates live there."""
    dtype: Any
    direct: bool = False
    """Whether our own C kernels compute what they can on a CPU. They and torch differ in their last bits."""


@dataclass(frozen=True)
class Cohort:
    """What is known of a round before training: whose update is received, whose is missing. Clients ascend."""

    round_index: int
    active: np.ndarray
    """[S] clients whose update is received."""
    missing: np.ndarray
    """[M] selected clients whose update is not."""
    client_weight: np.ndarray
    """[K] each client's weight in this round; sums to 1 over the selected, 0 elsewhere."""
    params: torch.Tensor
    """[P] the global parameters the round starts from."""
    seed: int = 0
    """The run's seed, from which `stream` derives random numbers."""
    work_frac: np.ndarray | None = None
    """[S] fraction of the local work behind each active client's update; None when all of it was done."""

    def stream(self, *names: str | int) -> np.random.Generator:
        """Return the random numbers of this round, a new generator at every call: `cohort.stream().random()`.

        The same seed, round and names give the same numbers, to every strategy and after a resume; so nothing of it
        is kept in the state. Names tell several uses in one round apart.
        """
        return stream(self.seed, "strategy", self.round_index, *names)

    @property
    def partial(self) -> np.ndarray:
        """The active clients whose work was cut short but taken all the same."""
        return self.active[:0] if self.work_frac is None else self.active[self.work_frac < 1.0]


@dataclass(frozen=True)
class Blend:
    """What a strategy returns: a weight per received update [S], a substitute per missing client [M].

    The two must agree: `weights` are the active clients' own weights plus what `stand_in` (or `mixture`) puts on them
    (what the correction holds of received updates aside), since the counterfactual measures each missing client's
    error by its substitute. `substituted` and `renormalised` below work the weights out; where no code says what
    represents a client, give `mixture`. Checked in every round, unless there is a mixture, a correction or something
    stored.
    """

    weights: np.ndarray
    stand_in: np.ndarray
    """[M] the client that stands in for each missing one, or MEAN, ZERO, STORED, LEFT_OUT, STORED_ON_MEAN."""
    similarity: np.ndarray
    """[M] the score by which the stand-in was chosen; NaN for none."""
    correction: torch.Tensor | Callable[[], torch.Tensor | None] | None = None
    """[P] added to the weighted sum; or what works it out, called when all received updates have been stored."""
    mixture: np.ndarray | None = None
    """[M, S + 1] where substitutes are mixtures: the part of each received update, and last of what is stored for
    the client itself, in each; `stand_in` then names the largest part. None where `stand_in` says it all."""
    predicted_error: np.ndarray | None = None
    """[M] ‖Δ̃ − Δ‖² that the strategy expects of each substitute, in the paper's units; NaN where unknown."""


@dataclass(frozen=True)
class UpdateScore:
    """How two received updates are scored against each other."""

    metric: Literal["cosine", "distance"] = "cosine"
    """cosine: ½(cos + 1), in 0..1; distance: −‖Δᵢ − Δⱼ‖ in the paper's units."""
    sketch_dim: int | None = None
    """Updates are sketched to this many numbers first; None compares them as they are."""
    whole_up_to: int | None = None
    """With a sketch_dim: rounds of up to so many active clients compare whole updates all the same, as do nets of less
    than four times as many parameters as a sketch has numbers, where sketches would save little."""


@dataclass(frozen=True)
class Feedback:
    """What the engine tells a strategy after training. S active clients in `Cohort.active` order."""

    similarity: np.ndarray | None = None
    """[S, S] scores of the pairs that `Strategy.pairs` asked for, NaN elsewhere; None unless `compares`."""
    losses: np.ndarray | None = None
    """[S] mean training losses."""
    figures: np.ndarray | None = None
    """[S, n] what `Strategy.store` returned, a row per client."""
    learning_rate: float = 1.0
    """η_L of the round; an update divided by it is in the paper's units."""


class MisfitError(ValueError):
    """What a strategy gives does not fit its cohort; the engine adds whose it is."""


class Strategy(Component):
    """A rule for the updates of missing clients."""

    family: ClassVar[str] = "strategy"
    #: The engine also trains the missing clients and passes their updates on as if they had been received.
    trains_missing: ClassVar[bool] = False
    #: The code in `Blend.stand_in` that means "no stand-in was found", counted in the column fallback_frac; None when
    #: the rule cannot fail.
    fallback: ClassVar[int | None] = None
    #: Missing clients are represented by single clients, whose friendship can be checked: columns friend_hit_frac,
    #: friend_stable_frac and stand_ins_max.
    befriends: ClassVar[bool] = False

    name: PlainName = Field("", max_length=100, description="Name in the run's tables; the kind if empty.")

    @property
    def label(self) -> str:
        """The name the run's tables use: `name` if given, else the kind."""
        return self.name or self.kind.rsplit(":", 1)[-1]

    @property
    def compares(self) -> bool:
        """Whether the engine computes similarities of received updates for `after_round`."""
        return False

    @property
    def stores(self) -> bool:
        """Whether the engine passes every chunk of received updates to `store`."""
        return False

    @property
    def takes_partial(self) -> bool:
        """Whether clients that the deadline cut off in training count as active, with the work they had done."""
        return False

    @property
    def update_score(self) -> UpdateScore:
        """How the engine scores pairs of updates, when `compares` is set."""
        return UpdateScore()

    def check(self, federation: Federation) -> None:
        """Raise an InputError when the strategy cannot run in this federation; called before any training."""

    def start(self, federation: Federation) -> State:
        """Make the state before round 0: a dict of numbers, text, arrays and tensors, and lists, tuples and dicts of those.

        Nothing else can be checkpointed, a random generator for one: `Cohort.stream` gives random numbers.
        """
        return {}

    def blend(self, state: State, cohort: Cohort) -> Blend:
        """Return, before training, weights and stand-ins. `cohort.active` is never empty."""
        raise NotImplementedError(f"{type(self).__name__} has no blend")

    def pairs(self, state: State, cohort: Cohort) -> np.ndarray | None:
        """Return the [S, S] mask of pairs worth comparing; None means all of them."""
        return None

    def store(
        self, state: State, cohort: Cohort, clients: np.ndarray, updates: torch.Tensor
    ) -> torch.Tensor | None:
        """Take a chunk of received updates [C, P] when `stores` is set; changes `state` in place.

        Figures [C, n] that it returns reach the host with the round's one transfer, and `after_round` as
        `Feedback.figures`. Do not wait for the accelerator here: that would slow down every chunk.
        """
        return None

    def after_round(self, state: State, cohort: Cohort, feedback: Feedback) -> State:
        """Take in what the round has shown and return the next state, which may be `state` changed in place.

        It is called after every round that had an active client, with that round's losses.
        """
        return state

    def stored(self, state: State, cohort: Cohort, clients: np.ndarray) -> torch.Tensor:
        """Return, before training, what is stored [M, P] for clients that `blend` marked STORED or STORED_ON_MEAN.

        With a mixture: all that it holds besides received updates, for any missing clients.
        """
        raise NotImplementedError(f"{type(self).__name__} stores nothing")

    def friendship(self, state: State) -> tuple[np.ndarray, np.ndarray] | None:
        """Return R and N, both [K, K], when the strategy keeps them."""
        return None

    def report(self, state: State) -> dict[str, float]:
        """Return the columns of the rounds table that only the strategy can fill."""
        return {}


def where_defined(strategy: Strategy) -> str:
    """Return class and file of a strategy, for messages to whoever wrote it."""
    module = sys.modules.get(type(strategy).__module__)
    file = getattr(module, "__file__", None) or type(strategy).__module__
    return f"{type(strategy).__qualname__} in {file}"


def renormalised(cohort: Cohort) -> np.ndarray:
    """Return the active clients' weights [S], scaled to sum to 1: the plain average over the active."""
    weight = cohort.client_weight[cohort.active]
    return np.asarray(weight / weight.sum())


def substituted(cohort: Cohort, stand_in: np.ndarray, similarity: np.ndarray) -> Blend:
    """Make the blend in which single clients, or the mean of the active, stand in for the missing."""
    if np.shape(stand_in) != cohort.missing.shape:
        shape, wanted = list(np.shape(stand_in)), len(cohort.missing)
        raise MisfitError(f"stand_in has shape {shape}, one number per missing client would be [{wanted}]")
    found = stand_in >= 0
    weights = cohort.client_weight[cohort.active].astype(np.float64)
    np.add.at(
        weights, np.searchsorted(cohort.active, stand_in[found]), cohort.client_weight[cohort.missing[found]]
    )
    weights += cohort.client_weight[cohort.missing[~found]].sum() * renormalised(cohort)
    return Blend(weights, stand_in, similarity)
