"""The engine's fdms and the plain twin of the paper's algorithm say the same, round by round."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fdsim.learning.engine import begin, learn
from fdsim.strategies.fdms import Fdms
from fdsim.strategies.reduction import Reduction
from tests.strategies.paper_twin import PaperTwin
from tests.strategies.worlds import QuadraticTrainer, clustered_targets, random_trace, task_on

CLIENTS, CLUSTERS, ROUNDS = 12, 3, 200
FIXED = {"scale": 0.12, "p": 0.05, "beta": 0.3, "b_max": 3, "delta_f": 0.02}
ESTIMATED = {"scale": 0.12, "p": 0.1, "beta": "estimate", "b_max": "estimate", "delta_f": "estimate"}
#: Distances are larger numbers than cosines, and so are the gaps between them.
WIDE = {"scale": 0.8}


@pytest.mark.parametrize("reduction", [None, FIXED, ESTIMATED], ids=["all pairs", "fixed", "estimated"])
@pytest.mark.parametrize("similarity", ["cosine", "distance"])
def test_two_hundred_rounds_agree(similarity: str, reduction: dict[str, Any] | None) -> None:
    if reduction is not None and similarity == "distance":
        reduction = reduction | WIDE
    trainer = QuadraticTrainer(clustered_targets(CLIENTS, CLUSTERS, 25, spread=0.5), noise=2.0, chunk=5)
    task = task_on(trainer, rounds=ROUNDS, clusters=CLUSTERS)
    strategy = Fdms(similarity=similarity, reduction=None if reduction is None else Reduction(**reduction))
    trace = random_trace(CLIENTS, ROUNDS, alpha=0.55, seed=3)
    trace[7] = random_trace(CLIENTS, 8, alpha=1.0)[7]  # one round in which nobody comes
    twin = PaperTwin(CLIENTS, ROUNDS, similarity=similarity, reduction=reduction)
    learner = begin(strategy, task)
    params = np.zeros(25)
    eliminated = compared = 0
    for trace_round, result in zip(trace, learn(strategy, task, trace, learner), strict=True):
        t, active = trace_round.round, [int(i) for i in trace_round.completed]
        updates = {i: trainer._update(_tensor(params), i, t) / 0.1 for i in active}
        if active:
            friends = twin.friends(active)
            weights = twin.weights(active, friends)
            stand_in = [-1 if friends.get(k) is None else friends[k] for k in range(CLIENTS)]
            assert result.clients.stand_in.tolist() == stand_in
            np.testing.assert_allclose(
                result.clients.weight, [weights.get(k, 0.0) for k in range(CLIENTS)], rtol=0, atol=1e-12
            )
            params = params + 0.1 * sum(weights[i] * updates[i] for i in active)
        twin.play(t, active, updates)
        state = learner.strategy_state
        np.testing.assert_array_equal(state["N"], twin.N)
        np.testing.assert_allclose(state["R"], twin.R, rtol=0, atol=1e-6)
        np.testing.assert_allclose(learner.params.numpy(), params, rtol=0, atol=1e-6)
        assert result.row.pairs_computed == twin.pairs_computed
        compared += twin.pairs_computed
        if reduction is not None:
            sets = [{int(i) for i in np.flatnonzero(row)} for row in state["candidates"]]
            assert sets == twin.C
            eliminated += result.row.pairs_eliminated
    everybody = sum(len(r.completed) * (len(r.completed) - 1) // 2 for r in trace)
    if reduction is None:
        assert compared == everybody
    else:
        assert eliminated == CLIENTS * (CLIENTS - 1) - sum(len(c) for c in twin.C) > 0
        assert compared < everybody


def _tensor(values: np.ndarray) -> Any:
    import torch

    return torch.from_numpy(values)
