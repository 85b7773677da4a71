"""The round loop: what it records, that it can stop and go on, and that looking changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch

from fdsim.catalogue import MENU, build
from fdsim.errors import NumericalError, TraceError
from fdsim.learning.engine import Learner, Task, begin, learn
from fdsim.strategies.base import Strategy
from fdsim.strategies.dropout import Dropout
from fdsim.strategies.fdms import Fdms
from fdsim.strategies.full import Full
from fdsim.strategies.stale import Stale
from fdsim.telemetry.schema import CLIENT_COLUMNS, ROUND_COLUMNS, SIMILARITY_COLUMNS, Substitute
from fdsim.trace import Cause, Outcome, Phase, TraceRound
from tests.strategies.worlds import (
    FakeChunk,
    QuadraticTrainer,
    clustered_targets,
    random_trace,
    scripted_trace,
    task_on,
)

CLIENTS, CLUSTERS = 8, 4


def world(rounds: int, **choices: Any) -> Task:
    return task_on(
        QuadraticTrainer(clustered_targets(CLIENTS, CLUSTERS, 10)),
        rounds=rounds,
        clusters=CLUSTERS,
        **choices,
    )


def same_rows(first: Any, second: Any) -> None:
    for f in fields(first):
        if not f.name.startswith("wall_"):
            np.testing.assert_array_equal(getattr(first, f.name), getattr(second, f.name), err_msg=f.name)


@pytest.mark.parametrize("kind", MENU["strategy"])
def test_a_learner_put_away_and_taken_out_goes_on_to_the_bit(kind: str) -> None:
    strategy = build("strategy", kind)
    assert isinstance(strategy, Strategy)
    trace = random_trace(CLIENTS, 12)
    task = world(12, similarity_every=5)
    learner = begin(strategy, task)
    whole = list(learn(strategy, task, trace, learner))
    halves, part = [], begin(strategy, task)
    for result in learn(strategy, task, trace, part):
        halves.append(result)
        if len(halves) == 5:
            break
    state = {
        name: value.clone()
        if isinstance(value, torch.Tensor)
        else np.copy(value)
        if isinstance(value, np.ndarray)
        else value
        for name, value in part.as_state().items()
    }
    assert all(isinstance(v, (torch.Tensor, np.ndarray, int, float)) for v in state.values())
    resumed = Learner.from_state(state, parameters=task.federation.parameters)
    halves += list(learn(strategy, task, trace, resumed))
    assert torch.equal(resumed.params, learner.params)
    for first, second in zip(whole, halves, strict=True):
        same_rows(first.row, second.row)
        same_rows(first.clients, second.clients)
        assert (first.snapshot is None) == (second.snapshot is None)
        if first.snapshot is not None:
            same_rows(first.snapshot, second.snapshot)


@pytest.mark.parametrize("kind", MENU["strategy"])
def test_the_counterfactual_leaves_learning_alone_to_the_bit(kind: str) -> None:
    strategy = build("strategy", kind)
    assert isinstance(strategy, Strategy)
    trace = random_trace(CLIENTS, 15)
    ends, rows = [], []
    for counterfactual in (False, True):
        task = world(15, counterfactual=counterfactual)
        learner = begin(strategy, task)
        rows.append(list(learn(strategy, task, trace, learner)))
        ends.append(learner)
    assert torch.equal(ends[0].params, ends[1].params)
    for name, value in ends[0].strategy_state.items():
        np.testing.assert_array_equal(value, ends[1].strategy_state[name])
    for off, on in zip(*rows, strict=True):
        assert off.row.substitution_error is None
        assert on.row.substitution_error is not None
        same_rows(replace(off.row, substitution_error=0.0), replace(on.row, substitution_error=0.0))
        np.testing.assert_array_equal(off.clients.weight, on.clients.weight)


def test_full_trains_everybody_selected_and_errs_by_nothing() -> None:
    task = world(3, counterfactual=True)
    results = list(learn(Full(), task, random_trace(CLIENTS, 3), begin(Full(), task)))
    assert task.trainer.trained == [(round_index, tuple(range(CLIENTS))) for round_index in range(3)]
    assert [result.row.substitution_error for result in results] == [0.0, 0.0, 0.0]
    assert results[1].row.clients_active < CLIENTS


def test_a_round_is_recorded_whole() -> None:
    """Round 0: all. Round 1: 0, 1, 2, 4, 5, 6 there; 3 and 7 (one cluster) missing."""
    task = world(2, counterfactual=True, similarity_every=1)
    strategy = Fdms()
    trace = scripted_trace(set(range(8)), {0, 1, 2, 4, 5, 6}, clients=8)
    trace[1].energy_j[:] = 2.0
    trace[1].bytes_up[:] = 10
    _, second = learn(strategy, task, trace, begin(strategy, task))
    row, rows = second.row, second.clients
    assert (row.round, row.clients_selected, row.clients_active, row.clients_dropped) == (1, 8, 6, 2)
    assert (row.energy_j, row.bytes_up, row.sim_time_s) == (16.0, 80, 120.0)
    assert row.friend_present_frac == 0.0
    assert row.friend_hit_frac == 0.0
    assert row.fallback_frac == 0.0
    assert row.friend_stable_frac is None
    assert row.pairs_computed == row.pairs_multiplied == 15
    assert row.stand_ins_max in (1, 2)
    assert rows.stood_in_for.sum() == 2
    assert (rows.stand_in >= 0).tolist() == [k in (3, 7) for k in range(8)]
    assert rows.substitute.tolist() == [Substitute.client if k in (3, 7) else -1 for k in range(8)]
    assert np.isfinite(rows.substitution_error).tolist() == [k in (3, 7) for k in range(8)]
    assert np.isfinite(rows.train_loss).tolist() == [k not in (3, 7) for k in range(8)]
    assert rows.weight.sum() == pytest.approx(1.0)
    assert row.effective_updates == pytest.approx(1.0 / (rows.weight**2).sum())
    assert row.wall_s >= row.wall_train_s + row.wall_blend_s + row.wall_evaluate_s + row.wall_analytics_s > 0
    assert second.snapshot is not None
    assert len(second.snapshot.first) == 28
    apart = np.isin(second.snapshot.first, (3, 7)) | np.isin(second.snapshot.second, (3, 7))
    assert second.snapshot.meetings.tolist() == np.where(apart, 1, 2).tolist()
    assert np.isfinite(second.snapshot.distance).all()


def test_records_and_columns_have_the_same_names() -> None:
    task = world(1, similarity_every=1)
    (result,) = learn(Fdms(), task, random_trace(CLIENTS, 1), begin(Fdms(), task))
    assert [f.name for f in fields(result.row)] == [c.name for c in ROUND_COLUMNS]
    assert [f.name for f in fields(result.clients)] == [c.name for c in CLIENT_COLUMNS]
    assert [f.name for f in fields(result.snapshot)] == [c.name for c in SIMILARITY_COLUMNS]


def test_evaluations_and_snapshots_come_when_due() -> None:
    task = world(8, evaluate_every=3, similarity_every=5)
    results = list(learn(Fdms(), task, random_trace(CLIENTS, 8), begin(Fdms(), task)))
    assert [r.row.round for r in results if r.row.test_accuracy is not None] == [2, 5, 7]
    assert [r.row.round for r in results if r.snapshot is not None] == [4, 7]
    without = world(8)
    assert all(
        r.snapshot is None for r in learn(Fdms(), without, random_trace(CLIENTS, 8), begin(Fdms(), without))
    )


def test_work_cut_off_by_the_deadline_counts_when_the_strategy_takes_it() -> None:
    """Client 3 has done 60 % of its work when the deadline comes; client 5 lost its link at 90 %."""
    trace = scripted_trace(set(range(8)) - {3, 5}, clients=8)
    for client, cause, progress in ((3, Cause.deadline, 0.6), (5, Cause.link_lost, 0.9)):
        trace[0].cause[client], trace[0].phase[client], trace[0].progress[client] = (
            cause,
            Phase.train,
            progress,
        )
    task = world(1, counterfactual=True)
    (strict,) = learn(Dropout(), task, trace, begin(Dropout(), task))
    (lenient,) = learn(Dropout(accept_partial=True), task, trace, begin(Dropout(), task))
    assert (strict.clients.weight > 0).tolist() == [k not in (3, 5) for k in range(8)]
    assert (lenient.clients.weight > 0).tolist() == [k != 5 for k in range(8)]
    assert (strict.row.clients_partial, lenient.row.clients_partial) == (0, 1)
    assert lenient.row.clients_dropped == 2
    assert lenient.clients.outcome[3] == Outcome.dropped
    # What it would have sent with all of its work is known from the counterfactual: 40 % of the update is missing.
    whole = torch.from_numpy(task.trainer._update(task.trainer.initial(), 3, 0))
    assert lenient.clients.substitution_error[3] == pytest.approx(float((0.4 * whole / 0.1).square().sum()))
    assert lenient.clients.substitution_cosine[3] == pytest.approx(1.0)


class Diverging(QuadraticTrainer):
    """Client 5 sends NaN from round 2 on."""

    def train(self, start: Any, clients: Any, round_index: int, work_frac: Any = None) -> Iterator[FakeChunk]:
        for chunk in super().train(start, clients, round_index, work_frac):
            bad = torch.from_numpy((chunk.clients == 5) & (round_index >= 2))
            yield FakeChunk(chunk.clients, chunk.updates, chunk.losses.masked_fill(bad, float("nan")))


def test_divergence_names_round_and_client() -> None:
    task = task_on(Diverging(clustered_targets(8, 4, 5)), rounds=4)
    learner = begin(Dropout(), task)
    with pytest.raises(
        NumericalError, match=r"round 2, client 5: .*\(1 of 8 clients affected\).*learning_rate"
    ):
        list(learn(Dropout(), task, random_trace(8, 4, alpha=0.0), learner))
    assert learner.next_round == 2
    assert torch.isfinite(learner.params).all()


class RunningAway(QuadraticTrainer):
    """Client 3's update is finite, but its square is not, and its loss is the largest."""

    def train(self, start: Any, clients: Any, round_index: int, work_frac: Any = None) -> Iterator[FakeChunk]:
        for chunk in super().train(start, clients, round_index, work_frac):
            far = torch.from_numpy(chunk.clients == 3)
            updates = torch.where(far[:, None], chunk.updates.new_tensor(1e200), chunk.updates)
            yield FakeChunk(chunk.clients, updates, chunk.losses.masked_fill(far, 7e9))


def test_an_overflowing_sum_names_the_client_with_the_largest_loss() -> None:
    task = task_on(RunningAway(clustered_targets(8, 4, 5)), rounds=2)
    with pytest.raises(
        NumericalError, match=r"round 0: the global update .*\(largest loss: client 3, 7e\+09\)"
    ):
        list(learn(Dropout(), task, random_trace(8, 2, alpha=0.0), begin(Dropout(), task)))


def test_a_trace_for_other_clients_is_refused() -> None:
    task = world(2)
    with pytest.raises(TraceError, match="has 5 clients where the data are divided among 8"):
        list(learn(Dropout(), task, random_trace(5, 2), begin(Dropout(), task)))


def test_rounds_are_pulled_one_at_a_time() -> None:
    """A source of rounds may look at the learner before it answers with the next one."""
    task = world(5)
    learner = begin(Dropout(), task)
    seen = []

    def selector() -> Iterator[TraceRound]:
        for trace_round in random_trace(CLIENTS, 5):
            seen.append((learner.next_round, float(learner.params.norm())))
            yield trace_round

    list(learn(Dropout(), task, selector(), learner))
    assert [round_index for round_index, _ in seen] == [0, 1, 2, 3, 4]
    assert len({norm for _, norm in seen}) == 5


def test_memories_survive_between_rounds() -> None:
    """Client 0 came in round 0 only; its update of then stands in for it later."""
    task = world(2, counterfactual=True)
    learner = begin(Stale(), task)
    results = list(learn(Stale(), task, scripted_trace({0, 1}, {1}, clients=8), learner))
    assert results[1].clients.substitute.tolist() == [Substitute.stored, -1] + [Substitute.left_out] * 6
    assert results[1].row.fallback_frac == pytest.approx(6 / 7)
    assert results[1].row.effective_updates == pytest.approx(2.0)
