"""`fdsim explain` forecasts, `fdsim list` shows what there is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

QUICKSTART = Path(__file__).resolve().parents[2] / "scenarios/quickstart.toml"


def test_the_forecast_tells_dropout_time_and_memory(fdsim: Callable[..., object]) -> None:
    answer = fdsim("explain", QUICKSTART, "--rounds", "5")
    assert answer.exit_code == 0, answer.err
    for word in ("20, 70 to 70 samples", "dropout, first 5 rounds", "parameters", "MB", "about"):
        assert word in answer.out


def test_a_deadline_that_never_binds_is_told(fdsim: Callable[..., object]) -> None:
    loose = fdsim("explain", QUICKSTART, "--rounds", "5", "--set", "server.deadline_s=1500")
    assert "1500 s never binds in the first 5 rounds: the slowest client took" in loose.out
    tight = fdsim("explain", QUICKSTART, "--rounds", "5", "--set", "server.deadline_s=0.2")
    assert "never binds" not in tight.out
    assert "deadline" in tight.out


def test_over_selection_beyond_the_fleet_is_told(fdsim: Callable[..., object]) -> None:
    sets = (
        "--set",
        "server.over_selection=2",
        "--set",
        "server.selection={kind='random', clients_per_round=15}",
    )
    answer = fdsim("explain", QUICKSTART, "--rounds", "2", *sets)
    assert "warning: server.over_selection: 2 × 15 asks for 30 clients, there are 20" in answer.out


def test_kinds_are_listed_by_family(fdsim: Callable[..., object]) -> None:
    answer = fdsim("list", "kinds", "strategy")
    assert answer.exit_code == 0
    assert "fdms" in answer.out
    assert "midrange" not in answer.out
    assert fdsim("list", "kinds", "stratgy").exit_code == 2


def test_profiles_are_listed_with_their_sources(fdsim: Callable[..., object]) -> None:
    assert "midrange_phone" in fdsim("list", "profiles").out
    one = fdsim("list", "profiles", "midrange_phone").out
    assert "capacity_wh = 19.0" in one
    assert "vendor power profiles" in one


def test_scenarios_are_listed_with_their_questions(fdsim: Callable[..., object]) -> None:
    answer = fdsim("list", "scenarios", QUICKSTART.parent)
    assert "Do friends make up for phones that vanish?" in answer.out
