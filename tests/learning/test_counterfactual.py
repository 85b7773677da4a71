"""Substitution errors, against the definition e = Δ_t − mean of the true Δ worked out for every strategy."""

from __future__ import annotations

import numpy as np
import pytest

from fdsim.catalogue import build
from fdsim.learning.engine import begin, learn
from fdsim.strategies.base import Strategy
from fdsim.telemetry.schema import Substitute
from tests.strategies.worlds import QuadraticTrainer, clustered_targets, random_trace, task_on

CLIENTS, ROUNDS, RATE = 8, 12, 0.1
STRATEGIES = [
    {"kind": "full"},
    {"kind": "dropout"},
    {"kind": "zero"},
    {"kind": "stale"},
    {"kind": "stale", "of": "model"},
    {"kind": "fdms"},
    {"kind": "oracle_friends"},
    {"kind": "fedvarp"},
    {"kind": "fdms_memory", "rule": "least"},
]


@pytest.mark.parametrize("keys", STRATEGIES, ids=lambda keys: " ".join(keys.values()))
def test_errors_are_their_definition(keys: dict[str, str]) -> None:
    strategy = build("strategy", keys)
    assert isinstance(strategy, Strategy)
    trainer = QuadraticTrainer(clustered_targets(CLIENTS, 4, 6), chunk=3)
    task = task_on(trainer, rounds=ROUNDS, clusters=4, counterfactual=True)
    trace = random_trace(CLIENTS, ROUNDS, alpha=0.4, seed=8)[1:]
    learner = begin(strategy, task)
    before = learner.params.clone()
    substitutes: dict[int, np.ndarray] = {}
    for trace_round, result in zip(trace, learn(strategy, task, trace, learner), strict=True):
        true = np.stack([trainer._update(before, k, trace_round.round) for k in range(CLIENTS)]) / RATE
        taken = (learner.params - before).numpy() / RATE
        assert result.row.substitution_error == pytest.approx(
            ((taken - true.mean(axis=0)) ** 2).sum(), rel=1e-9, abs=1e-18
        )
        rows = result.clients
        for k in trace_round.dropped:
            if keys["kind"] == "full":
                assert np.isnan(rows.substitution_error[k])
                continue
            word = Substitute(rows.substitute[k])
            active = trace_round.completed
            if keys["kind"] == "fdms_memory" and word is not Substitute.left_out:
                # Of the mean move of the clients that are back, a fresh stand-in is short of some and memory given some.
                back = [i for i in active if int(i) in substitutes]
                moves = [true[i] - substitutes[int(i)] for i in back]
                move = np.mean(moves, axis=0) if moves else np.zeros(6)
                plain = {
                    Substitute.client: true[rows.stand_in[k]],
                    Substitute.mean: true[active].mean(axis=0),
                    Substitute.stored: substitutes.get(int(k)),
                }[word]
                least, most = (-1.0, 1.0) if word is Substitute.stored else (-2.0, 0.0)
                errors = [
                    ((plain - true[k] + part * move) ** 2).sum() for part in np.linspace(least, most, 1001)
                ]
                assert min(errors) * 0.999 <= rows.substitution_error[k] <= max(errors) * 1.001
                continue
            if word is Substitute.client:
                substitute = true[rows.stand_in[k]]
            elif word is Substitute.mean:
                substitute = true[active].mean(axis=0)
            elif word is Substitute.zero:
                substitute = np.zeros(6)
            elif word is Substitute.left_out:
                substitute = taken
            elif word is Substitute.stored:
                stored = substitutes[int(k)]
                substitute = stored - before.numpy() / RATE if keys.get("of") == "model" else stored
            else:
                old = np.stack([substitutes.get(int(i), np.zeros(6)) for i in range(CLIENTS)])
                substitute = old[k] + (true[active] - old[active]).mean(axis=0)
            assert rows.substitution_error[k] == pytest.approx(((substitute - true[k]) ** 2).sum(), rel=1e-9)
            lengths = np.linalg.norm(substitute) * np.linalg.norm(true[k])
            if lengths:
                assert rows.substitution_cosine[k] == pytest.approx(substitute @ true[k] / lengths)
            else:
                assert np.isnan(rows.substitution_cosine[k])
        for k in trace_round.completed.tolist():
            moved = before.numpy() / RATE if keys.get("of") == "model" else 0.0
            substitutes[k] = true[k] + moved
        assert np.isnan(rows.substitution_error[trace_round.completed]).all()
        before = learner.params.clone()


def test_friends_err_less_than_the_mean_and_the_oracle_no_more() -> None:
    """Friends draw from one distribution here; where they differ, fdms may find better ones than the oracle deals."""
    errors = {}
    for kind in ("dropout", "fdms", "oracle_friends"):
        strategy = build("strategy", kind)
        assert isinstance(strategy, Strategy)
        trainer = QuadraticTrainer(clustered_targets(20, 4, 30, spread=0.0), noise=0.4)
        task = task_on(trainer, rounds=60, clusters=4, counterfactual=True, evaluate_every=100)
        results = learn(strategy, task, random_trace(20, 60, alpha=0.3), begin(strategy, task))
        errors[kind] = np.mean([result.row.substitution_error for result in results])
    assert errors["fdms"] < 0.5 * errors["dropout"]
    assert errors["oracle_friends"] <= errors["fdms"]


def test_missing_clients_are_trained_once_and_only_when_asked() -> None:
    for counterfactual in (False, True):
        trainer = QuadraticTrainer(clustered_targets(4, 2, 5))
        task = task_on(trainer, rounds=1, counterfactual=counterfactual)
        trace = random_trace(4, 1)
        trace[0].outcome[[1, 2]] = 1
        strategy = build("strategy", "dropout")
        assert isinstance(strategy, Strategy)
        list(learn(strategy, task, trace, begin(strategy, task)))
        assert trainer.trained == [(0, (0, 3))] + [(0, (1, 2))] * counterfactual
