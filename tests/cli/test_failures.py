"""A strategy that failed is never taken for one that was finished."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fdsim import open_run

QUICKSTART = Path(__file__).resolve().parents[2] / "scenarios/quickstart.toml"
SHORT = ("--set", "rounds=3", "--set", "strategies=['full', 'dropout']", "--set", "telemetry={}")


def test_a_run_whose_strategies_all_diverged_says_so_everywhere(
    tmp_path: Path, fdsim: Callable[..., Any]
) -> None:
    out = tmp_path / "run"
    answer = fdsim("run", QUICKSTART, "--out", out, *SHORT, "--set", "training.learning_rate=1e30")
    assert answer.exit_code == 3
    assert "2 of 2 strategies failed" in answer.err
    run = open_run(out)
    assert run.status == "complete with failures"
    assert list(run.failed) == ["full", "dropout"]
    shown = fdsim("show", out)
    assert shown.exit_code == 0
    assert "complete with failures" in shown.out
    compared = fdsim("compare", out, "--out", tmp_path / "t.csv")
    assert compared.exit_code == 0, compared.err
    assert compared.out.count("1 (1 failed)") == 2
    assert (pd.read_csv(tmp_path / "t.csv")["failed"] == 1).all()
    page = fdsim("report", out)
    assert page.exit_code == 0, page.err
    assert "Not every strategy reached the end: full failed" in (out / "report.html").read_text()
    verified = fdsim("verify", out)
    assert verified.exit_code == 0, verified.err
    assert "failed, then as now: full, dropout" in verified.out
    again = fdsim("run", QUICKSTART, "--out", out, *SHORT, "--set", "training.learning_rate=1e30", "--resume")
    assert again.exit_code == 3


def test_one_strategy_that_fails_leaves_the_others(
    tmp_path: Path, fdsim: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from fdsim.errors import NumericalError
    from fdsim.learning import engine

    real = engine.learn

    def learn(strategy: Any, *rest: Any) -> Any:
        if strategy.label == "full":
            raise NumericalError("round 0: NaN")
        return real(strategy, *rest)

    monkeypatch.setattr(engine, "learn", learn)
    answer = fdsim("run", QUICKSTART, "--out", tmp_path / "run", *SHORT)
    assert answer.exit_code == 3
    assert "1 of 2 strategies failed. full: round 0: NaN" in answer.err
    compared = fdsim("compare", tmp_path / "run")
    assert compared.exit_code == 0, compared.err
    assert compared.out.count("(1 failed)") == 1
