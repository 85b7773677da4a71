"""A cohort over several shards learns what a cohort in one process learns, and sends no more than is needed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fdsim.distributed.sharded_cohort import Order, Parts, ShardedCohort, carry_out
from fdsim.learning.engine import Task, begin, learn
from fdsim.prepare import make_task, prepare
from fdsim.progress import Silent
from fdsim.run import participation_rounds
from fdsim.scenario import parse_scenario

TABLES: dict[str, Any] = {
    "name": "shards",
    "seed": 3,
    "rounds": 4,
    "data": {
        "kind": "synthetic",
        "shape": [1, 4, 4],
        "train_samples": 300,
        "test_samples": 60,
        "partition": {"kind": "clustered", "clusters": 3, "labels_per_cluster": 3, "samples_per_client": 20},
    },
    "net": {"kind": "mlp"},
    "training": {"local_steps": 3, "batch_size": 5, "learning_rate": 0.1},
    "participation": {"kind": "fixed_ratio", "clients": 9, "alpha": 0.34},
    "acceleration": {"precision": "float64", "device": "cpu"},
}


class ShardHere:
    """A shard in this process, which keeps what it was asked for and how much it sent."""

    def __init__(self, task: Task) -> None:
        self.task, self.orders, self.sent = task, list[Order](), list[Parts]()

    def begin(self, start: np.ndarray, order: Order) -> Order:
        # As from an object store.
        self.start = start.copy()
        self.start.flags.writeable = False
        self.orders.append(order)
        return order

    def collect(self, handle: Order) -> Parts:
        parts = carry_out(self.task, self.start, handle)
        self.sent.append(parts)
        for array in (parts.clients, parts.losses, parts.updates, parts.weighted_sum, parts.sketches):
            if array is not None:
                array.flags.writeable = False
        return parts


def learnt(task: Task, strategy: Any, prepared: Any) -> tuple[torch.Tensor, list[Any]]:
    learner = begin(strategy, task)
    rows = [result.row for result in learn(strategy, task, participation_rounds(prepared, Silent()), learner)]
    return learner.params, rows


@pytest.mark.parametrize("shards", [1, 2, 4, 20])
@pytest.mark.parametrize(
    ("strategy", "counterfactual", "sends"),
    [
        ({"kind": "dropout"}, False, "weighted_sum"),
        ({"kind": "full"}, False, "weighted_sum"),
        ({"kind": "fdms"}, False, "updates"),
        ({"kind": "fdms", "sketch_dim": 64}, False, "sketches"),
        ({"kind": "stale"}, False, "updates"),
        ({"kind": "fdms_memory"}, False, "updates"),
        ({"kind": "fdms_memory", "friends": "signatures", "memory": "circles"}, True, "updates"),
        ({"kind": "dropout"}, True, "updates"),
    ],
)
def test_shards_learn_what_one_process_learns(
    strategy: dict[str, Any], counterfactual: bool, sends: str, shards: int
) -> None:
    tables = {**TABLES, "strategies": [strategy], "telemetry": {"counterfactual": counterfactual}}
    scenario = parse_scenario(tables)
    prepared = prepare(scenario)
    task = make_task(prepared)
    places = [ShardHere(make_task(prepared)) for _ in range(shards)]
    spread = replace(task, trainer=ShardedCohort(task.trainer, places, lambda params: params))
    params, rows = learnt(task, scenario.strategies[0], prepared)
    spread_params, spread_rows = learnt(spread, scenario.strategies[0], prepared)
    torch.testing.assert_close(spread_params, params, rtol=1e-9, atol=1e-11)
    for mine, theirs in zip(spread_rows, rows, strict=True):
        assert mine.test_accuracy == theirs.test_accuracy
        assert mine.train_loss == pytest.approx(theirs.train_loss, rel=1e-9)
        assert mine.pairs_computed == theirs.pairs_computed
        assert mine.friend_hit_frac == theirs.friend_hit_frac
    sent = [parts for place in places for parts in place.sent]
    assert sent
    assert all(getattr(parts, sends) is not None for parts in sent)
    assert all((parts.updates is None) == (sends != "updates") for parts in sent)


def test_work_cut_short_stays_with_its_client() -> None:
    """Nine clients, each with a share of its own of the work: the same updates whoever trains them."""
    prepared = prepare(parse_scenario({**TABLES, "strategies": [{"kind": "full"}]}))
    task = make_task(prepared)
    places = [ShardHere(make_task(prepared)) for _ in range(2)]
    cohort = ShardedCohort(task.trainer, places, lambda params: params)
    clients, work = np.arange(9), np.linspace(0.0, 1.0, 9)
    expected = np.zeros((9, len(task.trainer.initial())))
    found = np.zeros_like(expected)
    for trainer, into in ((task.trainer, expected), (cohort, found)):
        for chunk in trainer.train(task.trainer.initial(), clients, 1, work_frac=work):
            into[chunk.clients] = chunk.updates.numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert not expected[0].any()
    assert expected[8].any()
