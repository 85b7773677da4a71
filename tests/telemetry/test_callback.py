"""Callbacks are told what happens in order, and one that raises is named and leaves a run that can be resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fdsim.api.running import _importable, _listening
from fdsim.errors import CallbackError, InputError
from fdsim.pipeline import RunChoices, run_scenario
from fdsim.scenario import Scenario, load_scenario
from fdsim.telemetry.callback import MOMENTS, Callback, refuse_deaf
from fdsim.telemetry.reader import open_run

QUICKSTART = Path(__file__).resolve().parents[2] / "scenarios/quickstart.toml"


def small(*overrides: str) -> Scenario:
    two = 'strategies=[{kind="fdms"}, {kind="dropout"}]'
    return load_scenario(QUICKSTART, ["rounds=3", "telemetry.counterfactual=false", two, *overrides])


class Diary(Callback):
    """Writes down every moment but the fleet's clock."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def run_begin(self, scenario: Scenario, folder: Path) -> None:
        self.lines.append(f"run {scenario.name} begins in {folder.name}")

    def trace_begin(self, scenario: Scenario) -> None:
        self.lines.append("trace begins")

    def trace_round(self, trace_round: Any) -> None:
        self.lines.append(f"trace {trace_round.round}")

    def trace_end(self, trace: Any) -> None:
        self.lines.append(f"trace ends with {trace.rounds}")

    def strategy_begin(self, label: str, next_round: int) -> None:
        self.lines.append(f"{label} begins at {next_round}")

    def round_begin(self, label: str, round_index: int) -> None:
        self.lines.append(f"{label} {round_index} begins")

    def round_end(self, label: str, row: Any) -> None:
        self.lines.append(f"{label} {row.round} ends")

    def strategy_end(self, label: str, problem: str | None) -> None:
        self.lines.append(f"{label} ends: {problem}")

    def run_end(self, folder: Path, error: BaseException | None) -> None:
        self.lines.append(f"run ends: {type(error).__name__ if error else open_run(folder).status}")


class Falls:
    """Is no Callback, has one method only, and raises in round 1 of the second strategy."""

    def round_end(self, label: str, row: Any) -> None:
        if label == "dropout" and row.round == 1:
            raise ValueError("enough")


def learned(label: str, first: int = 0) -> list[str]:
    return [f"{label} {r} {what}" for r in range(first, 3) for what in ("begins", "ends")]


def test_a_callback_is_told_the_whole_run_in_order(tmp_path: Path) -> None:
    diary = Diary()
    run_scenario(small(), tmp_path / "run", callbacks=[diary])
    assert diary.lines == [
        *(
            "run quickstart begins in run",
            "trace begins",
            "trace 0",
            "trace 1",
            "trace 2",
            "trace ends with 3",
        ),
        *("fdms begins at 0", *learned("fdms"), "fdms ends: None"),
        *("dropout begins at 0", *learned("dropout"), "dropout ends: None"),
        "run ends: complete",
    ]


def test_one_that_raises_is_named_and_the_run_resumes_to_the_same_numbers(tmp_path: Path) -> None:
    scenario, diary = small("telemetry.checkpoint_every=1"), Diary()
    with pytest.raises(CallbackError, match=r"^callback Falls\.round_end: ValueError: enough$"):
        run_scenario(scenario, tmp_path / "run", callbacks=[Falls(), diary])
    assert diary.lines[-2:] == ["dropout 1 begins", "run ends: CallbackError"]
    run = open_run(tmp_path / "run")
    assert run.status == "failed"
    assert "Falls.round_end" in run.manifest["message"]
    assert run.progress == {"fdms": 3, "dropout": 2}

    again = Diary()
    run_scenario(scenario, tmp_path / "run", RunChoices(resume=True), callbacks=[again])
    # The trace and the first strategy were done; the second goes on after its last checkpoint.
    assert again.lines[1:] == [
        *("dropout begins at 2", *learned("dropout", 2), "dropout ends: None"),
        "run ends: complete",
    ]
    run_scenario(scenario, tmp_path / "whole")
    left, right = (open_run(tmp_path / name).rounds for name in ("run", "whole"))
    wall = [name for name in left if name.startswith("wall")]
    pd.testing.assert_frame_equal(left.drop(columns=wall), right.drop(columns=wall), check_exact=True)


def test_a_strategy_that_diverges_ends_with_its_problem(tmp_path: Path) -> None:
    diary = Diary()
    run_scenario(small("training.learning_rate=1e30"), tmp_path / "run", callbacks=[diary])
    ends = [line for line in diary.lines if " ends: " in line]
    assert [line.split(":")[0] for line in ends] == ["fdms ends", "dropout ends", "run ends"]
    assert "not finite" in ends[0]
    assert ends[2] == "run ends: complete with failures"


def test_an_end_that_raises_does_not_hide_why_the_run_stopped(tmp_path: Path) -> None:
    class BadEnd(Falls):
        def run_end(self, folder: Path, error: BaseException | None) -> None:
            raise OSError("cannot close")

    diary = Diary()
    with pytest.raises(CallbackError, match="enough") as caught:
        run_scenario(small(), tmp_path / "run", callbacks=[BadEnd(), diary])
    assert any("BadEnd.run_end: OSError: cannot close" in note for note in caught.value.__notes__)
    assert diary.lines[-1] == "run ends: CallbackError"


def test_objects_classes_and_names_are_callbacks() -> None:
    own = _listening([Falls(), Falls, "tests.telemetry.test_callback:Diary"])
    assert [type(one).__name__ for one in own] == ["Falls", "Falls", "Diary"]
    with pytest.raises(InputError, match="give a list of callbacks"):
        _listening("tests.telemetry.test_callback:Diary")
    with pytest.raises(InputError, match=r"there is no '.*:Diray'"):
        _listening(["tests.telemetry.test_callback:Diray"])


class Needy(Falls):
    def __init__(self, path: Path) -> None:
        self.path = path


def test_a_class_whose_constructor_needs_arguments_is_refused_with_a_way_out() -> None:
    for given in (Needy, "tests.telemetry.test_callback:Needy"):
        with pytest.raises(InputError, match=r"Needy: .*needs more \(.*'path'\).*give an object instead"):
            _listening([given])
        with pytest.raises(InputError, match=r"Needy: .*'path'.*give its arguments defaults"):
            _importable([given])
    assert _listening([Needy(Path("here"))])


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("on_round_end", "round_end"),
        ("round_ends", "round_end"),
        ("end_round", "round_end"),
        ("onRunEnd", "run_end"),
        ("strategy_beginn", "strategy_begin"),
    ],
)
@pytest.mark.parametrize("base", [Callback, Falls])
def test_a_misspelt_moment_is_refused(base: type, name: str, meant: str) -> None:
    kind = type("Typo", (base,), {name: lambda self, *about: None})
    for given in (kind, kind()):
        with pytest.raises(InputError, match=f"Typo: '{name}' is no moment.*did you mean '{meant}'"):
            refuse_deaf(given)


def test_what_hears_nothing_is_refused_with_the_moments() -> None:
    for deaf in (object(), print, type("Idle", (Callback,), {"helper": lambda self: None})()):
        with pytest.raises(InputError, match=f"no method that a run would call.*{', '.join(MOMENTS)}"):
            refuse_deaf(deaf)


def test_methods_for_other_uses_are_left_alone() -> None:
    nothing = lambda self, *about: None  # noqa: E731
    refuse_deaf(type("Both", (Falls,), {"on_epoch_end": nothing, "plot": nothing, "_round_ends": nothing})())
