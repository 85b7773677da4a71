"""One curve's numbers, on curves short enough to work out by hand."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from fdsim.comparison.measures import COSTS, QUALITIES, curve_of, fluctuation, mean_accuracy


def rounds(accuracy: list[float | None], energy_j: float = 500.0) -> pd.DataFrame:
    n = len(accuracy)
    return pd.DataFrame(
        {
            "round": range(n),
            "sim_time_s": [1800.0 * (i + 1) for i in range(n)],
            "test_accuracy": pd.array(accuracy, dtype="Float64").astype(float),
            "energy_j": energy_j,
        }
    )


def test_qualities_by_hand() -> None:
    found = curve_of(rounds([0.1, 0.3, 0.5, 0.4]), 4).qualities()
    assert found["final_accuracy"] == 0.4
    assert found["best_accuracy"] == 0.5
    assert found["mean_accuracy"] == pytest.approx((0.2 + 0.4 + 0.45) / 3)
    assert found["fluctuation"] == pytest.approx(np.std([0.2, 0.2, -0.1], ddof=1))
    assert list(found) == [measure.name for measure in QUALITIES]


def test_costs_by_hand() -> None:
    curve = curve_of(rounds([0.1, 0.3, 0.5, 0.4]), 4)
    assert [curve.cost(m.name, 0.3).value for m in COSTS] == [2, 1.0, 1.0]
    never = curve.cost("rounds", 0.9)
    assert (never.value, never.reached) == (4, False)


def test_energy_before_an_evaluation_counts_though_it_was_not_evaluated() -> None:
    curve = curve_of(rounds([None, 0.5, None, 0.6]), 4)
    assert curve.rounds.tolist() == [2, 4]
    assert curve.cost("energy_kj", 0.5).value == 1.0
    assert curve.cost("energy_kj", 0.6).value == 2.0


def test_an_even_rise_does_not_fluctuate_whatever_its_slope() -> None:
    assert fluctuation(np.linspace(0.1, 0.9, 9)) == pytest.approx(0.0, abs=1e-12)
    assert fluctuation(np.array([0.1, 0.9] * 4)) > 0.8
    assert math.isnan(fluctuation(np.array([0.1, 0.2])))


def test_the_area_does_not_depend_on_how_often_one_looks() -> None:
    line = np.linspace(0.0, 1.0, 11)
    assert mean_accuracy(np.arange(11), line) == pytest.approx(mean_accuracy(np.arange(11)[::5], line[::5]))
    assert mean_accuracy(np.array([3]), np.array([0.4])) == 0.4


def test_an_unfinished_curve_has_no_final_accuracy() -> None:
    curve = curve_of(rounds([0.1, 0.3]), planned_rounds=4)
    assert not curve.complete
    assert all(math.isnan(value) for value in curve.qualities().values())
    assert curve.cost("rounds", 0.3).reached


def test_energy_that_nobody_recorded_is_unknown_not_free() -> None:
    cost = curve_of(rounds([0.5, 0.6], energy_j=0.0), 2).cost("energy_kj", 0.5)
    assert math.isnan(cost.value)
    assert not cost.reached


def test_the_first_third_does_not_count_as_worst() -> None:
    assert curve_of(rounds([0.1, 0.2, 0.5, 0.4, 0.6, 0.7]), 6).worst_accuracy() == 0.4


def test_beside_full_only_rounds_count_that_both_evaluated() -> None:
    """A model is in force for the half hour from its evaluation to the next; the last one has no next."""
    full = curve_of(rounds([0.5, None, 0.8, 0.8, 0.8]), 5)
    mine = curve_of(rounds([0.4, 0.1, 0.75, 0.5, 0.3]), 5)
    found = mine.beside(full)
    assert found["gap_to_full"] == pytest.approx((0.1 + 0.05 + 0.3 + 0.5) / 4)
    assert found["hours_below_full"] == pytest.approx(1.0 + 0.5)
    assert math.isnan(mine.beside(curve_of(rounds([None]), 1))["gap_to_full"])
