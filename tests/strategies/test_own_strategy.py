"""A strategy of a user's own, as an outsider would write it: one class in a file beside the scenario."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from fdsim.catalogue import build
from fdsim.learning.engine import begin, learn
from fdsim.strategies.base import Strategy
from tests.strategies.worlds import QuadraticTrainer, clustered_targets, random_trace, scripted_trace, task_on

#: The site shows this text.
OWN_STRATEGY = '''\
import numpy as np
from pydantic import PositiveFloat

from fdsim.strategies.base import MEAN, Strategy, substituted


class LastSeen(Strategy):
    """Lets the active client with the most similar last loss stand in, if any is close enough."""

    within: PositiveFloat = 0.5

    def start(self, federation):
        return {"loss": np.full(federation.clients, np.nan)}

    def blend(self, state, cohort):
        gap = np.abs(state["loss"][cohort.missing, None] - state["loss"][cohort.active])
        gap = np.where(np.isnan(gap), np.inf, gap)
        stand_in = np.where(gap.min(axis=1) < self.within, cohort.active[gap.argmin(axis=1)], MEAN)
        return substituted(cohort, stand_in, -gap.min(axis=1))

    def after_round(self, state, cohort, received):
        state["loss"][cohort.active] = received.losses
        return state
'''


def test_the_readme_shows_it() -> None:
    page = Path(__file__).resolve().parents[2] / "docs/pages/howto/strategy.md"
    assert OWN_STRATEGY in page.read_text(encoding="utf-8")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Strategy:
    (tmp_path / "my_strategies.py").write_text(OWN_STRATEGY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_strategies", raising=False)
    made = build("strategy", {"kind": "my_strategies:LastSeen", "within": 2.0})
    assert isinstance(made, Strategy)
    return made


def test_it_is_found_named_and_learns(own: Strategy) -> None:
    assert own.label == "LastSeen"
    task = task_on(QuadraticTrainer(clustered_targets(10, 2, 8)), rounds=20, clusters=2, counterfactual=True)
    learner = begin(own, task)
    results = list(learn(own, task, random_trace(10, 20), learner))
    assert learner.next_round == 20
    assert any((result.clients.stand_in >= 0).any() for result in results)
    assert all(result.row.substitution_error is not None for result in results)


def test_it_does_what_it_says(own: Strategy) -> None:
    """Round 0 everybody; then 2 is missing: whoever had the closest loss in round 0 stands in."""
    trainer = QuadraticTrainer(clustered_targets(4, 2, 8))
    task = task_on(trainer, rounds=2)
    first, second = learn(own, task, scripted_trace({0, 1, 2, 3}, {0, 1, 3}, clients=4), begin(own, task))
    gaps = np.abs(first.clients.train_loss - first.clients.train_loss[2])
    gaps[2] = np.inf
    assert second.clients.stand_in[2] == np.argmin(gaps)


def test_its_settings_are_checked_like_a_built_ins(own: Strategy) -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        build("strategy", {"kind": "my_strategies:LastSeen", "within": -1})
    with pytest.raises(ValueError, match="Extra inputs"):
        build("strategy", {"kind": "my_strategies:LastSeen", "wihtin": 1})


def test_nobody_missing_is_still_fedavg(own: Strategy) -> None:
    ends = []
    for strategy in (own, build("strategy", "dropout")):
        assert isinstance(strategy, Strategy)
        task = task_on(QuadraticTrainer(clustered_targets(5, 1, 8)), rounds=5)
        learner = begin(strategy, task)
        list(learn(strategy, task, random_trace(5, 5, alpha=0.0), learner))
        ends.append(learner.params)
    torch.testing.assert_close(ends[0], ends[1], rtol=0, atol=1e-14)
