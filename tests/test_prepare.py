"""What a scenario fixes before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fdsim.errors import ScenarioError, TraceError
from fdsim.prepare import make_task, prepare, refuse_impossible
from fdsim.scenario import parse_scenario
from fdsim.trace import Cause, plain_round, write_trace

TABLES: dict[str, Any] = {
    "name": "weights",
    "rounds": 1,
    "data": {"kind": "synthetic", "train_samples": 120, "partition": {"kind": "quantity_skew", "alpha": 0.5}},
    "net": {"kind": "mlp"},
    "participation": {"kind": "bernoulli", "clients": 6, "active_prob": 0.5},
    "strategies": [{"kind": "dropout"}],
}


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_clients_weigh_alike_or_by_their_samples(weighting: str) -> None:
    training = {"local_steps": 1, "weighting": weighting}
    prepared = prepare(parse_scenario({**TABLES, "training": training}))
    counts = np.array([len(rows) for rows in prepared.indices])
    assert len(set(counts.tolist())) > 1
    expected = counts / counts.sum() if weighting == "samples" else np.full(6, 1 / 6)
    np.testing.assert_allclose(prepared.client_weight, expected)


@pytest.mark.parametrize(
    ("changed", "place"),
    [
        ({}, None),
        ({"training": {"local_epochs": 10**9}}, "training"),
        ({"training": {"local_steps": 10**9}}, "training"),
        ({"net": {"kind": "mlp", "hidden": [10**6]}}, "net"),
        ({"data": {"kind": "synthetic", "train_samples": 3000, "shape": [1, 300, 300]}}, "data"),
    ],
)
def test_what_no_machine_of_a_gigabyte_can_hold_is_refused(
    changed: dict[str, Any], place: str | None
) -> None:
    prepared = prepare(parse_scenario({**TABLES, "training": {"local_steps": 1}, **changed}))
    if place is None:
        refuse_impossible(prepared, 1e9)
        return
    with pytest.raises(ScenarioError, match=rf"{place}: .*would take .* [GT]B, and there are 1 GB"):
        refuse_impossible(prepared, 1e9)


def test_a_trace_with_too_few_rounds_is_refused_before_the_run(tmp_path: Path) -> None:
    path = tmp_path / "short.parquet"
    write_trace(path, [plain_round(0, np.ones(6, dtype=bool), 60.0, Cause.scripted)])
    training = {"local_steps": 1}
    tables = {**TABLES, "training": training, "participation": {"kind": "trace", "path": str(path)}}
    prepare(parse_scenario(tables))
    with pytest.raises(TraceError, match=r"short\.parquet: has 1 rounds, and 2 are wanted. set rounds = 1"):
        prepare(parse_scenario({**tables, "rounds": 2}))


@pytest.mark.parametrize(
    ("changed", "most"),
    [
        ({}, 6),
        (
            {
                "participation": {
                    "kind": "bernoulli",
                    "clients": 6,
                    "active_prob": 0.5,
                    "clients_per_round": 2,
                }
            },
            2,
        ),
        (
            {
                "participation": {
                    "kind": "bernoulli",
                    "clients": 6,
                    "active_prob": 0.5,
                    "clients_per_round": 9,
                }
            },
            6,
        ),
        ({"participation": None, "fleet": [{"profile": "midrange_phone", "count": 6}]}, 6),
        (
            {
                "participation": None,
                "fleet": [{"profile": "midrange_phone", "count": 6}],
                "server": {"selection": {"kind": "random", "frac": 0.5}, "over_selection": 1.5},
            },
            5,
        ),
    ],
)
def test_a_cohort_is_planned_for_those_that_a_round_can_select(
    changed: dict[str, Any], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a million clients five hundred may be at work, too few for a second thread."""
    from fdsim.learning.cohort import cohort

    planned_for = []

    def plan_for(acceleration: Any, spec: Any, accelerators: Any) -> Any:
        planned_for.append(spec.clients)
        return plan(acceleration, spec, accelerators)

    plan = cohort.plan_for
    monkeypatch.setattr(cohort, "plan_for", plan_for)
    tables = {k: v for k, v in {**TABLES, "training": {"local_steps": 1}, **changed}.items() if v is not None}
    make_task(prepare(parse_scenario(tables)))
    assert planned_for == [most]
