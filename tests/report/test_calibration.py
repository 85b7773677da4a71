"""Predicted against measured errors in the report, and what represented the missing clients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import fdsim
from fdsim.report.calibration import calibration_figure, reliability, substitutes_table
from fdsim.report.data import gather
from fdsim.report.figure import Figure, Remark, Table
from fdsim.report.friendship import friends_figure
from fdsim.report.run_page import run_curves

STRATEGIES = [{"kind": "fdms"}, {"kind": "fdms_memory"}]


@pytest.fixture(scope="module")
def folder(make_run: Callable[..., Path]) -> Path:
    participation = {"kind": "bernoulli", "clients": 8, "active_prob": 0.5}
    return make_run(strategies=STRATEGIES, rounds=8, fleet=None, server=None, participation=participation)


def test_dots_are_the_errors_of_the_clients_table(folder: Path) -> None:
    figure = calibration_figure(gather(folder))
    assert isinstance(figure, Figure)
    assert list(figure.payload["views"]) == ["fdms_memory"]
    table = figure.payload["views"]["fdms_memory"]["table"]["values"]
    rows = fdsim.open_run(folder).read("clients", strategy="fdms_memory")
    both = rows.dropna(subset=["predicted_error", "substitution_error"])
    assert len(both) > 5
    assert np.sort(table[0]) == pytest.approx(np.sort(both["predicted_error"]), rel=1e-4)
    assert np.sort(table[1]) == pytest.approx(np.sort(both["substitution_error"]), rel=1e-4)
    assert "rank correlation" in figure.remark


def test_substitutes_are_counted(folder: Path) -> None:
    table = substitutes_table(gather(folder))
    assert isinstance(table, Table)
    rows = fdsim.open_run(folder).read("clients", strategy="fdms_memory")
    words = rows["substitute"].dropna().astype(str)
    mine = dict(zip(table.columns, next(row for row in table.rows if row[0] == "fdms_memory"), strict=True))
    assert mine["missing"] == str(len(words))
    assert mine["its own memory"] == f"{(words == 'stored').mean():.1%}"
    assert mine["another client"] == f"{(words == 'client').mean():.1%}"
    assert mine["left out"] == f"{(words == 'left_out').mean():.1%}"


def test_the_page_says_why_few_friends_are_chosen_where_there_is_memory(folder: Path) -> None:
    data = gather(folder)
    found = friends_figure(run_curves(data), 8)
    assert isinstance(found, Figure)
    assert found.remark.startswith("fdms_memory may also represent a client by what it remembers of it")
    paper = friends_figure([curve for curve in run_curves(data) if curve.strategy == "fdms"], 8)
    assert isinstance(paper, Figure)
    assert not paper.remark


def test_without_predictions_the_page_says_why(tiny: Path) -> None:
    said = calibration_figure(gather(tiny))
    assert isinstance(said, Remark)
    assert "fdms_memory" in said.says


def test_the_reliability_line_has_medians_of_equal_groups() -> None:
    predicted = np.arange(1.0, 25.0)
    x, y = reliability(predicted[::-1], 2.0 * predicted[::-1])
    assert x.tolist() == (np.arange(12) * 2 + 1.5).tolist()
    assert y.tolist() == (2 * x).tolist()
