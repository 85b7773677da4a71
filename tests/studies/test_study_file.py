"""What a study file may say, and what it is told when it says something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fdsim.errors import ScenarioError
from fdsim.studies.study_file import flatten, load_study


def test_quoted_and_plain_dotted_keys_mean_the_same(write_study: Any) -> None:
    quoted = write_study(
        '[study]\nbase = "base.toml"\n[study.grid]\n"participation.alpha" = [0.34, 0.5]\n', folder="a"
    )
    plain = write_study(
        '[study]\nbase = "base.toml"\n[study.grid]\nparticipation.alpha = [0.34, 0.5]\n', folder="b"
    )
    assert (
        load_study(quoted).table.grid == load_study(plain).table.grid == {"participation.alpha": [0.34, 0.5]}
    )


def test_a_table_with_a_kind_is_a_value() -> None:
    assert flatten({"data": {"partition": {"kind": "iid"}}, "a": {"b": 1}}) == {
        "data.partition": {"kind": "iid"},
        "a.b": 1,
    }


def test_tables_beside_the_study_are_laid_over_the_base(write_study: Any) -> None:
    study = load_study(write_study('rounds = 7\n[study]\nbase = "base.toml"\n[training]\nbatch_size = 3\n'))
    assert study.base_tables["rounds"] == 7
    assert study.base_tables["training"] == {"local_steps": 2, "batch_size": 3, "learning_rate": 0.1}
    assert study.name == "study"


def test_a_study_needs_no_base_when_it_is_a_scenario_itself(write_study: Any) -> None:
    path = write_study('[study]\nbase = "base.toml"\n')
    whole = path.with_name("whole.toml")
    whole.write_text(path.with_name("base.toml").read_text() + "\n[study]\nseeds = 2\n")
    assert load_study(whole).table.seeds == 2


def test_the_base_is_found_beside_the_file_that_names_it(write_study: Any) -> None:
    path = write_study('[study]\nbase = "base.toml"\nseeds = 4\n')
    below = path.parent / "below"
    below.mkdir()
    (below / "more.toml").write_text('extends = "../study.toml"\n[study]\nseeds = 2\n')
    study = load_study(below / "more.toml")
    assert study.table.seeds == 2
    assert study.base_tables["name"] == "tiny"


def test_overrides_reach_the_base_and_the_study(write_study: Any) -> None:
    path = write_study(
        '[study]\nbase = "base.toml"\nseeds = 9\n[study.grid]\n"participation.alpha" = [0.34, 0.5]\n'
    )
    study = load_study(
        path, ["rounds=3", "study.seeds=2", "study.grid.participation.alpha=[0.5]", "study.cases.a.rounds=4"]
    )
    assert study.base_tables["rounds"] == 3
    assert study.table.seeds == 2
    assert study.table.grid == {"participation.alpha": [0.5]}
    assert study.table.cases == {"a": {"rounds": 4}}


@pytest.mark.parametrize(
    ("study", "overrides", "told"),
    [
        ("[study]\n", [], "the study has no scenario"),
        ('name = "x"\n', [], "there is no [study] table"),
        ('[study]\nbase = "gone.toml"\n', [], "there is no file"),
        ('[study]\nbase = "study.toml"\n', [], "is a study, not a scenario"),
        (
            '[study]\nbase = "base.toml"\nsedes = 3\n',
            [],
            "study.toml, line 3: sedes: there is no such key (did you mean 'seeds'?)",
        ),
        ('[study]\nbase = "base.toml"\nseeds = 0\n', [], "line 3: seeds"),
        ('[study]\nbase = "base.toml"\nseeds = [1, 1]\n', [], "the same seed is listed twice"),
        ('[study]\nbase = "base.toml"\n[study.grid]\nrounds = []\n', [], "at least 1 is needed"),
        ('[study]\nbase = "base.toml"\n[study.grid]\nrounds = 3\n', [], "3 is not a list"),
        ('[study]\nbase = "base.toml"\n[study.grid]\nseed = [1, 2]\n', [], "seeds are not swept"),
        (
            '[study]\nbase = "base.toml"\n[study.zip]\nrounds = [3, 4]\n"training.batch_size" = [5]\n',
            [],
            "keys of [study.zip] move together",
        ),
        (
            '[study]\nbase = "base.toml"\n[study.grid]\nrounds = [3]\n[study.zip]\nrounds = [3]\n',
            [],
            "set the same thing",
        ),
        (
            '[study]\nbase = "base.toml"\n[study.grid]\ndata = [{kind = "digits"}]\n"data.kind" = ["digits"]\n',
            [],
            "set the same thing",
        ),
        (
            '[study]\nbase = "base.toml"\n[study.grid]\nrounds = [3]\n',
            ["rounds=4"],
            "'rounds' is swept by [study.grid]",
        ),
        ('[study]\nbase = "base.toml"\n', ["study.seeds"], "is not of the form key=value"),
        ("[study\n", [], "not valid TOML"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    write_study: Any, study: str, overrides: list[str], told: str
) -> None:
    path: Path = write_study(study)
    with pytest.raises(ScenarioError) as error:
        load_study(path, overrides)
    assert told in str(error.value)
    assert "study.toml" in str(error.value) or "--set" in str(error.value)


def test_a_wrong_base_and_an_uneven_zip_are_both_told_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "s.study.toml"
    path.write_text(
        '\n[study]\nbase = "nosuch.toml"\n[study.zip]\nrounds = [1, 2]\n"server.deadline_s" = [1]\n'
    )
    with pytest.raises(ScenarioError) as told:
        load_study(path)
    assert f"{path}, line 4: zip: keys of [study.zip] move together" in str(told.value)
    assert f"{path}, line 3: base: there is no file" in str(told.value)
    path.write_text('\n[study]\nbase = "nosuch.toml"\n')
    with pytest.raises(ScenarioError, match=r"line 3: base: there is no file"):
        load_study(path)
