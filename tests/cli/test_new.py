"""`fdsim new` makes a folder that runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest


def test_the_starter_runs_with_its_own_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fdsim: Callable[..., object]
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    made = fdsim("new", tmp_path / "mine")
    assert made.exit_code == 0
    assert "fdsim run scenario.toml" in made.out
    monkeypatch.chdir(tmp_path / "mine")
    answer = fdsim("run", "scenario.toml", "--set", "rounds=2")
    assert answer.exit_code == 0, answer.err
    assert (tmp_path / "mine/runs/my-first-scenario/rounds").is_dir()


def test_nothing_is_overwritten(tmp_path: Path, fdsim: Callable[..., object]) -> None:
    (tmp_path / "scenario.toml").write_text("mine")
    answer = fdsim("new", tmp_path)
    assert answer.exit_code == 2
    assert (tmp_path / "scenario.toml").read_text() == "mine"
    assert not (tmp_path / "my_models.py").exists()
