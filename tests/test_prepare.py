"""What a scenario fixes before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fdsim.errors import InputError, ScenarioError, TraceError
from fdsim.prepare import divide, divide_to_check, make_task, prepare, refuse_impossible
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


@pytest.mark.parametrize("coupling", ["random", "by_cluster", 0.5])
def test_a_check_sees_what_a_run_sees(coupling: str | float) -> None:
    """All but who holds what, which takes longest for a million clients."""
    partition = {"kind": "clustered", "clusters": 2, "samples_per_client": 3}
    data = {"kind": "synthetic", "train_samples": 120, "partition": partition}
    fleet = [{"profile": "midrange_phone", "count": 4}, {"profile": "midrange_phone", "count": 2}]
    tables = {k: v for k, v in TABLES.items() if k != "participation"}
    scenario = parse_scenario(
        {**tables, "data": data, "fleet": fleet, "coupling": coupling, "training": {"local_steps": 1}}
    )
    whole, checked = prepare(scenario), prepare(scenario, divide_to_check)
    assert whole.true_cluster is not None
    assert checked.true_cluster is not None
    assert sorted(whole.true_cluster) == sorted(checked.true_cluster)
    assert sorted(rows.tolist() for rows in whole.indices) == sorted(
        rows.tolist() for rows in checked.indices
    )
    assert whole.workload.samples.tolist() == checked.workload.samples.tolist()


@pytest.mark.parametrize("divider", [divide, divide_to_check])
@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"coupling": "by_cluster"}, "needs data with known clusters"),
        ({"data": {"kind": "synthetic", "train_samples": 5}}, "6 clients cannot share 5"),
        (
            {"data": {"kind": "synthetic", "partition": {"kind": "clustered", "samples_per_client": 900}}},
            "more than the",
        ),
    ],
)
def test_a_check_refuses_what_a_run_refuses(divider: Any, changed: dict[str, Any], problem: str) -> None:
    scenario = parse_scenario({**TABLES, "training": {"local_steps": 1}, **changed})
    with pytest.raises(InputError, match=problem):
        prepare(scenario, divider)


OWN = """
from fdsim.strategies.dropout import Dropout


class Asking(Dropout):
    def check(self, federation):
        print(federation.true_cluster.tolist())
"""


def test_a_strategy_of_your_own_is_asked_about_the_clients_as_they_will_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "asking.py").write_text(OWN)
    data = {"kind": "synthetic", "partition": {"kind": "clustered", "clusters": 3, "samples_per_client": 3}}
    tables = {**TABLES, "data": data, "training": {"local_steps": 1}}
    scenario = parse_scenario({**tables, "strategies": [{"kind": "asking:Asking"}]})
    wanted = prepare(scenario).true_cluster
    got = prepare(scenario, divide_to_check).true_cluster
    other = prepare(parse_scenario(tables), divide_to_check).true_cluster
    assert np.array_equal(wanted, got)  # type: ignore[arg-type]
    assert not np.array_equal(wanted, other)  # type: ignore[arg-type]
