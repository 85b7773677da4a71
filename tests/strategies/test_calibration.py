"""The errors that fdms_memory expects of its substitutes, against those that the counterfactual measures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from fdsim.learning.engine import begin, learn
from fdsim.prepare import make_task, prepare
from fdsim.progress import Silent
from fdsim.run import participation_rounds
from fdsim.scenario import load_scenario

SCENARIOS = Path(__file__).resolve().parent.parent.parent / "scenarios"
SETTINGS = ['strategies=[{kind="fdms_memory"}]', "telemetry.counterfactual=true", "telemetry.events=false"]


@pytest.mark.parametrize("name", ["quickstart", "outage", "sticky_dropouts"])
def test_expected_errors_rank_as_measured_ones(name: str) -> None:
    prepared = prepare(
        load_scenario(SCENARIOS / f"{name}.toml", [*SETTINGS, "telemetry.evaluate_every=1000"])
    )
    task, strategy = make_task(prepared), prepared.scenario.strategies[0]
    rounds = participation_rounds(prepared, Silent())
    rows = [result.clients for result in learn(strategy, task, rounds, begin(strategy, task))]
    expected = np.concatenate([row.predicted_error for row in rows])
    measured = np.concatenate([row.substitution_error for row in rows])
    both = np.isfinite(expected) & np.isfinite(measured)
    assert both.sum() > 100
    assert both.sum() > 0.8 * np.isfinite(measured).sum()
    assert spearmanr(expected[both], measured[both]).statistic > 0.6
    # Not only their order: on the whole they are right within a factor of two, rather too large as updates shrink.
    assert 0.5 < np.median(expected[both]) / np.median(measured[both]) < 2.0
