"""A strategy of a user's own, as an outsider would write it: one class in a file beside the scenario."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from pydantic import PrivateAttr

import fdsim
from fdsim.catalogue import build
from fdsim.errors import RunError, ScenarioError
from fdsim.learning.engine import begin, learn
from fdsim.strategies.base import (
    MEAN,
    Blend,
    Cohort,
    Federation,
    Feedback,
    State,
    Strategy,
    renormalised,
    substituted,
)
from fdsim.testing import ContractError, check_strategy
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

    def after_round(self, state, cohort, feedback):
        state["loss"][cohort.active] = feedback.losses
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


# -- mistakes of an own strategy, told before they cost anything

SMALL = """
name = "small"
rounds = 3
[data]
kind = "digits"
partition = { kind = "iid" }
[net]
kind = "mlp"
hidden = [4]
[training]
local_steps = 1
[participation]
kind = "fixed_ratio"
clients = 6
alpha = 0.5
[[strategies]]
kind = "dropout"
[[strategies]]
kind = "own_mistakes:Mine"
"""

MINE = """
import numpy as np
from fdsim import Blend, Strategy
from fdsim.strategies.base import LEFT_OUT, MEAN, ZERO, renormalised, substituted

class Mine(Strategy):
    def start(self, federation):
        return {start}

    def blend(self, state, cohort):
        none = np.full(len(cohort.missing), MEAN)
        return {blend}

    def after_round(self, state, cohort, feedback):
        return {after}
"""
GOOD_BLEND = "Blend(renormalised(cohort), none, np.full(len(none), np.nan))"


def _run_own(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    start: str = "{}",
    blend: str = GOOD_BLEND,
    after: str = "state",
) -> pd.DataFrame:
    text = MINE.replace("{start}", start).replace("{blend}", blend).replace("{after}", after)
    (tmp_path / "own_mistakes.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "own_mistakes", raising=False)
    return fdsim.run(SMALL, tmp_path / "run", progress=False).rounds


def test_a_good_one_runs_and_its_random_numbers_are_the_runs_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = "{'drawn': [*state['drawn'], cohort.stream('coin').random()]}"
    rounds = _run_own(tmp_path, monkeypatch, start="{'drawn': []}", after=after)
    assert len(rounds) == 6


@pytest.mark.parametrize(
    ("start", "told"),
    [
        ("{'rng': np.random.default_rng(1)}", r"state\['rng'\] is a Generator"),
        ("{'deep': [1, {'x': object()}]}", r"state\['deep'\]\[1\]\['x'\] is a object"),
        ("{'all': np.array([None])}", r"state\['all'\] is an array of Python objects"),
    ],
)
def test_a_state_that_cannot_be_kept_is_told_before_training(
    start: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        ScenarioError, match=rf"'Mine', Mine in .*own_mistakes\.py: {told}.*cohort\.stream\(\)"
    ):
        _run_own(tmp_path, monkeypatch, start=start)
    # Not even the first strategy has begun.
    assert fdsim.open_run(tmp_path / "run").progress == {"dropout": 0, "Mine": 0}


def test_a_state_that_goes_wrong_later_is_told_after_its_first_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ScenarioError, match=r"state\['cohort'\] is a Cohort"):
        _run_own(tmp_path, monkeypatch, after="{'cohort': cohort}")


@pytest.mark.parametrize(
    ("blend", "told"),
    [
        (
            "Blend(renormalised(cohort)[:-1], none, none * 0.0)",
            r"weights has shape \[5\], one .* active .* \[6\]",
        ),
        (
            "Blend(renormalised(cohort), none[:1], none * 0.0)",
            r"stand_in has shape \[1\], .* missing .* \[3\]",
        ),
        ("Blend(renormalised(cohort), none, 0.0)", r"similarity has shape \[\]"),
        ("Blend(renormalised(cohort), none, none * 0.0, cohort.params[:5])", r"correction has shape \[5\]"),
        (
            "Blend(renormalised(cohort), none, none * 0.0, lambda: cohort.params[:5])",
            r"correction has shape \[5\]",
        ),
        ("Blend(renormalised(cohort), cohort.missing, none * 0.0)", r"client \d stands in but is not active"),
        ("Blend(renormalised(cohort) * np.nan, none, none * 0.0)", "weights are not all finite"),
        ("renormalised(cohort)", "returned a ndarray and not a Blend"),
        (
            "Blend(np.ones(len(cohort.active)), none, none * 0.0)",
            "weights sum to 6, with these stand-ins to 1 .*round 0",
        ),
        (
            "Blend(renormalised(cohort), none * 0 + cohort.active[0], none * 0.0)",
            r"client \d has weight 0\.\d+, its own and those it stands in for make 0\.",
        ),
        ("Blend(renormalised(cohort), none * 0 + ZERO, none * 0.0)", "weights sum to 1, with .* to 0.5"),
        (
            "Blend(cohort.client_weight[cohort.active], none * 0 + LEFT_OUT, none * 0.0)",
            "weights sum to 0.5, with these stand-ins to 1",
        ),
        ("substituted(cohort, none[:1], none[:1] * 0.0)", r"stand_in has shape \[1\], .* \[3\]"),
    ],
)
def test_a_blend_that_does_not_fit_names_strategy_file_and_shape(
    blend: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RunError, match=rf"strategy 'Mine', Mine in .*own_mistakes\.py: blend: {told}"):
        _run_own(tmp_path, monkeypatch, blend=blend)


@pytest.mark.parametrize("hook", ["start", "after_round"])
def test_a_forgotten_return_names_class_and_hook(
    hook: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"after" if hook == "after_round" else "start": "None"}
    told = rf"Mine in .*own_mistakes\.py: {hook}: returned a NoneType and not a dict\. Return the state"
    with pytest.raises(RunError, match=told):
        _run_own(tmp_path, monkeypatch, **given)


@pytest.mark.parametrize(
    "blend",
    [
        # The others' average, by weights of one's own.
        "Blend(np.eye(len(cohort.active))[0], none * 0 + LEFT_OUT, none * 0.0)",
        # No code says it: a mixture does, and nothing needs to be stored.
        "Blend(np.ones(len(cohort.active)), none, none * 0.0, "
        "mixture=np.zeros((len(none), len(cohort.active) + 1)))",
        "Blend(renormalised(cohort) * 0.5, none, none * 0.0, cohort.params * 0)",
    ],
)
def test_weights_are_free_where_stand_ins_do_not_determine_them(
    blend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(_run_own(tmp_path, monkeypatch, blend=blend)) == 6


def test_random_numbers_repeat_by_seed_round_and_name() -> None:
    def cohort(round_index: int, seed: int = 1) -> Cohort:
        return Cohort(
            round_index, np.array([0]), np.array([1]), np.array([0.5, 0.5]), torch.zeros(1), seed=seed
        )

    numbers = [cohort(0).stream().random(), cohort(1).stream().random(), cohort(0, 2).stream().random()]
    numbers += [cohort(0).stream("other").random()]
    assert len(set(numbers)) == 4
    assert cohort(0).stream().random() == numbers[0]


class Forgetful(Strategy):
    """Keeps what it learns where no checkpoint finds it."""

    _seen: set[int] = PrivateAttr(default_factory=set)

    def blend(self, state: State, cohort: Cohort) -> Blend:
        known = [client for client in cohort.active if client in self._seen]
        return substituted(
            cohort,
            np.full(len(cohort.missing), known[0] if known else MEAN),
            np.full(len(cohort.missing), np.nan),
        )

    def after_round(self, state: State, cohort: Cohort, feedback: Feedback) -> State:
        self._seen.update(cohort.active.tolist())
        return state


class Louder(Strategy):
    """Adds to the update what no stand-in says."""

    def blend(self, state: State, cohort: Cohort) -> Blend:
        nobody = np.full(len(cohort.missing), MEAN)
        return Blend(renormalised(cohort), nobody, nobody * np.nan, correction=cohort.params + 1)


class Drawing(Strategy):
    """Keeps a generator."""

    def start(self, federation: Federation) -> State:
        return {"rng": np.random.default_rng(1)}


class Heavy(Strategy):
    """Counts everybody whole."""

    def blend(self, state: State, cohort: Cohort) -> Blend:
        nobody = np.full(len(cohort.missing), MEAN)
        return Blend(np.ones(len(cohort.active)), nobody, nobody * np.nan)


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (Drawing(), r"a checkpoint can hold the state, but: state\['rng'\]"),
        (Heavy(), "blend: weights sum to"),
        (Forgetful(), "resumed after round 1, a run learns the same"),
        (Louder(), "errs by no more than its substitutes"),
    ],
)
def test_the_contract_finds_what_is_broken(broken: Strategy, told: str) -> None:
    with pytest.raises(ContractError, match=told):
        check_strategy(broken)


def test_the_contract_takes_a_good_one(own: Strategy) -> None:
    check_strategy(own)
