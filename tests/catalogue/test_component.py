"""One menu for every family: built-in names, a user's own classes, and helpful answers to typing slips."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import ValidationError

from fdsim.catalogue import BASES, MENU, Chosen, Component, Table, build, each_kind, find, kind_of, merge
from fdsim.errors import CatalogueError
from fdsim.strategies.base import Strategy


def test_every_kind_resolves_to_its_family_and_has_one_plain_sentence() -> None:
    for family, kind, line in each_kind():
        module, _, base = BASES[family].partition(":")
        assert issubclass(find(family, kind), getattr(import_module(module), base))
        assert line.endswith("."), f"{family} {kind}: {line!r}"
        assert kind_of(find(family, kind)) == kind


def test_no_family_is_empty() -> None:
    assert set(BASES) == set(MENU)
    assert all(MENU.values())


def test_an_unknown_kind_answers_with_the_nearest() -> None:
    with pytest.raises(CatalogueError, match=r"no strategy called 'fmds' \(did you mean 'fdms'\?\)"):
        build("strategy", "fmds")


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("no_such_module:Thing", "no module called 'no_such_module'"),
        ("fdsim.strategies.base:Nothing", "has no class 'Nothing'"),
        ("fdsim.strategies.base:Blend", "is not a strategy"),
        ({"rounds": 3}, "the table has no kind"),
        (7, "is not a table with a kind"),
    ],
)
def test_what_cannot_be_a_strategy_says_why(table: object, problem: str) -> None:
    with pytest.raises(CatalogueError, match=problem):
        build("strategy", table)


def test_a_class_of_the_users_own_is_found_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outsider_strategy.py").write_text(
        "from fdsim.strategies.dropout import Dropout\n"
        "class Mine(Dropout):\n    '''Mine.'''\n    patience: int = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    made = build("strategy", {"kind": "outsider_strategy:Mine", "patience": 5})
    assert made.model_dump(mode="json", exclude_none=True)["patience"] == 5
    assert made.kind == "outsider_strategy:Mine"
    assert build("strategy", made.model_dump()) == made


def test_a_bug_in_the_users_module_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_module_of_mine.py").write_text("import a_package_that_is_not_there\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(ModuleNotFoundError, match="a_package_that_is_not_there"):
        build("strategy", "broken_module_of_mine:Mine")


def test_components_fill_their_kind_in_when_made_in_python() -> None:
    assert find("strategy", "dropout")().kind == "dropout"


def test_a_chosen_field_dumps_the_chosen_class_whole() -> None:
    class Holder(Table):
        rule: Annotated[Strategy, Chosen("strategy")]

    held = Holder.model_validate({"rule": {"kind": "stale", "of": "model"}})
    assert held.model_dump()["rule"]["of"] == "model"
    assert Holder.model_validate(held.model_dump()) == held
    with pytest.raises(ValidationError):
        Holder.model_validate({"rule": {"kind": "stale", "off": "model"}})


def test_components_are_frozen() -> None:
    made: Component = build("strategy", "dropout")
    with pytest.raises(ValidationError):
        made.kind = "full"


@pytest.mark.parametrize(
    ("top", "merged"),
    [
        ({"kind": "linear", "health": 0.9}, {"kind": "linear", "capacity_wh": 15, "health": 0.9}),
        ({"health": 0.9}, {"kind": "linear", "capacity_wh": 15, "health": 0.9}),
        ("linear", {"kind": "linear", "capacity_wh": 15}),
        ({"kind": "mains"}, {"kind": "mains"}),
        ("mains", "mains"),
        ([1], [1]),
    ],
)
def test_tables_merge_unless_their_kind_differs(top: object, merged: object) -> None:
    base = {"battery": {"kind": "linear", "capacity_wh": 15}, "count": 3}
    assert merge(base, {"battery": top}) == {"battery": merged, "count": 3}
    assert base == {"battery": {"kind": "linear", "capacity_wh": 15}, "count": 3}
