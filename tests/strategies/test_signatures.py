"""Signatures: friends that never met, and how far apart they are expected to be."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from fdsim.learning.engine import begin, learn
from fdsim.strategies.base import Federation
from fdsim.strategies.fdms import Fdms
from fdsim.strategies.fdms_memory import FdmsMemory
from fdsim.strategies.signatures import (
    blank_signatures,
    distances,
    enter_distances,
    enter_signatures,
    likeness,
    sketched,
)
from fdsim.trace import TraceRound
from tests.strategies.worlds import QuadraticTrainer, clustered_targets, scripted_trace, task_on

CLIENTS, CLUSTERS, PARAMETERS = 12, 3, 400


def federation(parameters: int = PARAMETERS, clients: int = CLIENTS) -> Federation:
    weight = np.full(clients, 1 / clients)
    return Federation(clients, 10, parameters, 3, weight, None, torch.device("cpu"), torch.float64)


def two_shifts(rounds: int) -> list[TraceRound]:
    """Clients 0–5 and 6–11, both with two of each cluster, take turns and never meet."""
    return scripted_trace(
        *(set(range(6)) if r % 2 == 0 else set(range(6, 12)) for r in range(rounds)), clients=CLIENTS
    )


def test_sketches_keep_inner_products() -> None:
    state = blank_signatures(federation(5000))
    generator = torch.Generator().manual_seed(0)
    updates = torch.randn(40, 5000, generator=generator, dtype=torch.float64)
    found, true = sketched(state, updates), updates @ updates.T
    assert found.shape == (40, 128)
    cosine = (true / 5000).numpy()
    assert np.abs((found @ found.T).numpy() / 5000 - cosine).max() < 6 * np.sqrt(2 / 128)
    assert sketched(blank_signatures(federation(50)), updates[:, :50]).shape == (40, 50)


def test_a_signature_is_the_mean_of_centred_normalised_sketches() -> None:
    state = blank_signatures(federation())
    rng = np.random.default_rng(0)
    sums, counts = np.zeros((CLIENTS, 128)), np.zeros(CLIENTS)
    for _ in range(8):
        clients = np.sort(rng.choice(CLIENTS, 5, replace=False))
        sketches = rng.normal(size=(5, 128))
        enter_signatures(state, clients, sketches)
        for client, sketch in zip(clients, sketches, strict=True):
            centred = sketch - sketches.mean(axis=0)
            sums[client] += centred / np.linalg.norm(centred)
            counts[client] += 1
    np.testing.assert_array_equal(state["signed"], counts)
    np.testing.assert_allclose(state["signature"], sums / np.maximum(counts, 1)[:, None], atol=1e-6)


def test_a_client_alone_in_its_round_has_no_signature() -> None:
    state = blank_signatures(federation())
    enter_signatures(state, np.array([4]), np.ones((1, 128)))
    assert state["signed"].sum() == 0
    assert np.isnan(likeness(state, np.array([4]), np.array([4, 5]))).all()


def test_friends_who_never_met_are_found() -> None:
    trainer = QuadraticTrainer(clustered_targets(CLIENTS, CLUSTERS, PARAMETERS, spread=0.3), noise=0.5)
    task = task_on(trainer, rounds=20, clusters=CLUSTERS)
    trace = two_shifts(20)
    hits = {}
    for friends in ("meetings", "signatures"):
        strategy = Fdms(friends=friends)
        results = list(learn(strategy, task, trace, begin(strategy, task)))
        hits[friends] = [result.row.friend_hit_frac for result in results[4:]]
    assert hits["meetings"] == [0.0] * 16
    assert hits["signatures"] == [1.0] * 16


def test_the_distance_of_those_who_never_met_is_foretold() -> None:
    """After twenty rounds in two shifts, the expected distances across shifts against those of the updates."""
    trainer = QuadraticTrainer(clustered_targets(CLIENTS, CLUSTERS, PARAMETERS, spread=0.3), noise=0.5)
    task = task_on(trainer, rounds=20, clusters=CLUSTERS)
    strategy = FdmsMemory(friends="signatures")
    learner = begin(strategy, task)
    list(learn(strategy, task, two_shifts(20), learner))
    updates = np.stack([trainer._update(learner.params, k, 20) for k in range(CLIENTS)]) / 0.1
    early, late = np.arange(6), np.arange(6, 12)
    true = ((updates[early, None] - updates[None, late]) ** 2).sum(axis=2)
    found = distances(learner.strategy_state, early, late)
    assert np.corrcoef(true.ravel(), found.ravel())[0, 1] > 0.95
    assert np.abs(np.log(found / true)).mean() < 0.5


def test_before_anything_is_known_no_distance_is_foretold() -> None:
    state = blank_signatures(federation())
    everybody = np.arange(CLIENTS)
    assert np.isnan(distances(state, everybody, everybody)).all()
    enter_distances(state, everybody[:3], np.ones((3, 3)), np.ones(3))
    assert np.isnan(distances(state, everybody, everybody)).all()


@pytest.mark.parametrize("keys", [{"window": 3}, {"sketch_dim": 64}, {"similarity": "distance"}])
def test_what_is_about_pairs_is_refused_with_signatures(keys: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=f"{next(iter(keys))} is about pairs that meet"):
        Fdms(friends="signatures", **keys)
