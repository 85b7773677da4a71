"""Grid × zip × cases × seeds, each trial checked before any of them runs."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from fdsim.errors import InputError
from fdsim.studies.plan import plan_study
from fdsim.studies.scheduler import in_good_order
from fdsim.studies.study_file import load_study

WHOLE = """
[study]
base = "base.toml"
seeds = 2
[study.grid]
"participation.alpha" = [0.34, 0.5]
[study.zip]
"training.batch_size" = [5, 10]
"training.learning_rate" = [0.05, 0.1]
[study.cases.proximal]
"training.proximal_mu" = 0.2
[study.cases.plain]
"""


def test_every_combination_is_planned_once(write_study: Any) -> None:
    plan = plan_study(load_study(write_study(WHOLE)))
    seen = {
        (
            trial.case,
            trial.scenario.training.batch_size,
            trial.scenario.training.learning_rate,
            trial.settings["participation.alpha"],
            trial.seed,
        )
        for trial in plan.trials
    }
    assert len(plan.trials) == len(seen) == 2 * 2 * 2 * 2
    assert {(batch, rate) for _, batch, rate, _, _ in seen} == {(5, 0.05), (10, 0.1)}
    assert {trial.scenario.training.proximal_mu for trial in plan.trials if trial.case == "proximal"} == {0.2}
    assert {trial.scenario.training.proximal_mu for trial in plan.trials if trial.case == "plain"} == {0.0}
    assert len({trial.id for trial in plan.trials}) == len(plan.trials)


def test_seeds_count_from_the_base_or_are_listed(write_study: Any) -> None:
    counted = plan_study(load_study(write_study('[study]\nbase = "base.toml"\nseeds = 3\n')))
    listed = plan_study(load_study(write_study('[study]\nbase = "base.toml"\nseeds = [7, 3]\n')))
    assert [trial.seed for trial in counted.trials] == [1, 2, 3]
    assert [trial.seed for trial in listed.trials] == [7, 3]


def test_trials_are_known_by_what_they_run(write_study: Any) -> None:
    """Adding a value, or writing the sweep in another order, leaves every other trial its id's hash."""
    first = plan_study(
        load_study(write_study('[study]\nbase = "base.toml"\n[study.grid]\nrounds = [3, 4]\n'))
    )
    second = plan_study(
        load_study(write_study('[study]\nbase = "base.toml"\n[study.grid]\nrounds = [5, 4, 3]\n'))
    )
    assert {trial.id for trial in first.trials} < {trial.id for trial in second.trials}


def test_trials_that_differ_in_learning_alone_share_a_trace(write_study: Any) -> None:
    study = (
        '[study]\nbase = "base.toml"\nseeds = 2\n[study.grid]\n"training.learning_rate" = [0.05, 0.1, 0.2]\n'
    )
    plan = plan_study(load_study(write_study(study)))
    assert len(plan.trials) == 6
    assert plan.traces == 2


def test_one_strategy_per_trial_splits_runs_and_shares_traces(write_study: Any) -> None:
    plan = plan_study(
        load_study(write_study('[study]\nbase = "base.toml"\nseeds = 2\none_strategy_per_trial = true\n'))
    )
    assert [[s.label for s in trial.scenario.strategies] for trial in plan.trials] == [
        ["dropout"],
        ["fdms"],
    ] * 2
    assert plan.traces == 2


def test_tables_can_be_swept_and_merge_where_the_kind_stays(write_study: Any) -> None:
    study = (
        '[study]\nbase = "base.toml"\n[study.grid]\n'
        '"data.partition" = [{ kind = "iid" }, { kind = "clustered", samples_per_client = 15 }]\n'
    )
    plan = plan_study(load_study(write_study(study)))
    partitions = [trial.scenario.as_tables()["data"]["partition"] for trial in plan.trials]
    assert partitions[0]["kind"] == "iid"
    assert partitions[1]["clusters"] == 3
    assert partitions[1]["samples_per_client"] == 15


def test_the_resolved_file_plans_the_same_trials(write_study: Any) -> None:
    path = write_study(WHOLE)
    plan = plan_study(load_study(path))
    again = path.with_name("again.toml")
    again.write_text(plan.resolved_toml())
    assert "base" not in tomllib.loads(plan.resolved_toml())["study"]
    assert [trial.id for trial in plan_study(load_study(again)).trials] == [trial.id for trial in plan.trials]


def test_one_of_each_trace_goes_first_then_the_long_ones(write_study: Any) -> None:
    study = '[study]\nbase = "base.toml"\nseeds = 2\n[study.grid]\n"training.learning_rate" = [0.05, 0.1]\n'
    plan = plan_study(load_study(write_study(study)))
    order = in_good_order(plan.trials)
    assert len({trial.trace_key for trial in order[:2]}) == 2
    longer = plan_study(
        load_study(write_study('[study]\nbase = "base.toml"\n[study.grid]\nrounds = [3, 9, 5]\n'))
    )
    assert [trial.scenario.rounds for trial in in_good_order(longer.trials)] == [9, 5, 3]


@pytest.mark.parametrize(
    ("grid", "told"),
    [
        (
            '"participation.alpah" = [0.3]',
            ["study.toml, line 4", "participation.alpah: there is no such key", "'alpha'"],
        ),
        ('"participation.alpha" = [0.34, 1.5]', ["study.toml, line 4", "participation.alpha: 1.5", "seed=1"]),
        ('"nonsense.key" = [1]', ["study.toml, line 4", "nonsense: there is no such key"]),
        ('"strategies.7.name" = ["x"]', ["study.toml, line 4", "'7' is not one of the 2 entries"]),
        ('"rounds.deeper" = [1]', ["study.toml, line 4", "nothing called 'deeper'"]),
        ("rounds = [3, 3]", ["two trials are the same run"]),
        ('"net.kind" = ["mlp", "mpl"]', ["no net called 'mpl' (did you mean 'mlp'?)", "kind=mpl"]),
        ('"participation.clients" = [6, 5000]', ["5000", "clients=5000"]),
        (
            '"data.partition" = [{ kind = "iid" }]\n"strategies.0.kind" = ["dropout", "oracle_friends"]',
            ["the oracle needs true clusters", "kind=oracle_friends"],
        ),
        ('"training.batch_size" = [5, -1]', ["training.batch_size: -1 must be greater than 0"]),
    ],
)
@pytest.mark.parametrize("to_check", [False, True])
def test_a_wrong_trial_is_found_before_anything_runs(
    write_study: Any, grid: str, told: list[str], to_check: bool
) -> None:
    path = write_study(f'[study]\nbase = "base.toml"\n[study.grid]\n{grid}\n')
    with pytest.raises(InputError) as error:
        plan_study(load_study(path), to_check=to_check)
    for words in told:
        assert words in str(error.value)


SEEDS_AND_RATES = """
[study]
base = "base.toml"
seeds = 3
[study.grid]
"training.learning_rate" = [0.05, 0.1]
"data.partition" = [{ kind = "%s" }, { kind = "%s", alpha = 5.0 }]
"""


def test_trials_divide_the_same_data_once(write_study: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """And each has the division, hence the trace, that it would have had alone."""
    from fdsim import prepare
    from fdsim.studies import shared_divisions

    divided = []

    def divide(scenario: Any) -> Any:
        divided.append(scenario)
        return prepare.divide(scenario)

    monkeypatch.setattr(shared_divisions, "divide", divide)
    plan = plan_study(load_study(write_study(SEEDS_AND_RATES % (("dirichlet",) * 2))))
    assert len(plan.trials) == 12
    assert len(divided) == 3 * 2
    for trial in plan.trials:
        assert trial.trace_key == prepare.prepare(trial.scenario).trace_key


@pytest.mark.parametrize(
    ("kind", "times"), [("clustered", 2), ("dirichlet", 6)], ids=["any seed will do", "a seed may fail"]
)
def test_a_check_divides_for_each_seed_only_where_seeds_decide(
    write_study: Any, kind: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fdsim import prepare
    from fdsim.studies import shared_divisions

    divided = []

    def divide_to_check(scenario: Any) -> Any:
        divided.append(scenario)
        return prepare.divide_to_check(scenario)

    monkeypatch.setattr(shared_divisions, "divide_to_check", divide_to_check)
    study = SEEDS_AND_RATES % (kind, kind)
    study = study.replace("alpha = 5.0", "clusters = 2") if kind == "clustered" else study
    path = write_study(study.replace('kind = "clustered"', 'kind = "clustered", samples_per_client = 3'))
    checked = plan_study(load_study(path), to_check=True)
    assert len(divided) == times
    whole = plan_study(load_study(path))
    assert [trial.id for trial in checked.trials] == [trial.id for trial in whole.trials]


def test_only_the_last_divisions_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    from fdsim.scenario import load_scenario
    from fdsim.studies import shared_divisions

    monkeypatch.setattr(shared_divisions, "_MOST_KEPT", 2)
    quick = load_scenario(Path(__file__).parents[2] / "scenarios" / "quickstart.toml")
    one, two, three = (quick.model_copy(update={"seed": seed}) for seed in (1, 2, 3))
    divisions = shared_divisions.SharedDivisions()
    first, second = divisions.of(one), divisions.of(two)
    assert divisions.of(one) is first
    divisions.of(three)
    assert divisions.of(one) is first
    assert divisions.of(two) is not second
    monkeypatch.setattr(shared_divisions, "_MOST_ROWS", 10)
    assert shared_divisions.SharedDivisions().of(one) is not first
