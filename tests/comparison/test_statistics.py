"""Statistics checked against theory, by hand, and against scipy's own tests."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fdsim.comparison.measures import Cost
from fdsim.comparison.statistics import (
    describe,
    gap_recovered,
    paired_difference,
    restricted,
    summarise_costs,
)

accuracies = st.lists(st.floats(0, 1), min_size=3, max_size=12)


def test_the_paired_interval_is_the_paired_t_tests() -> None:
    mine, theirs = np.array([0.9, 0.85, 0.8, 0.95]), np.array([0.8, 0.83, 0.7, 0.9])
    found, expected = paired_difference(mine, theirs), stats.ttest_rel(mine, theirs)
    interval = expected.confidence_interval(0.95)
    assert (found.t_interval.low, found.t_interval.high) == pytest.approx((interval.low, interval.high))
    assert found.p_value == pytest.approx(expected.pvalue)
    assert found.mean == pytest.approx(0.0675)


def test_pairing_sees_what_means_alone_do_not() -> None:
    """Seeds differ by much, strategies by little: the paired interval is clear of zero, the means overlap."""
    rng = np.random.default_rng(1)
    seeds = rng.normal(0.5, 0.1, 10)
    mine, theirs = seeds + 0.02 + rng.normal(0, 0.002, 10), seeds
    found = paired_difference(mine, theirs)
    assert found.t_interval.low > 0.01
    assert found.bootstrap_interval.low > 0.01
    assert describe(mine).interval.low < describe(theirs).mean


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    """Of 300 studies of 8 repeats, the 95 % t interval holds the true difference in 285 ± 4 standard errors."""
    rng = np.random.default_rng(2)
    covered = 0
    for _ in range(300):
        found = paired_difference(rng.normal(0.03, 0.02, 8), np.zeros(8))
        covered += found.t_interval.low <= 0.03 <= found.t_interval.high
    assert abs(covered - 285) <= 4 * math.sqrt(300 * 0.95 * 0.05)


def test_unknown_values_do_not_count_and_few_give_no_interval() -> None:
    assert paired_difference([0.5, math.nan], [0.4, 0.3]).n == 1
    assert math.isnan(paired_difference([0.5], [0.4]).t_interval.low)
    assert paired_difference([math.nan], [0.4]).n == 0
    assert paired_difference([], []).n == 0
    same = paired_difference([0.5, 0.6, 0.7], [0.4, 0.5, 0.6])
    assert (same.t_interval.low, same.bootstrap_interval.high) == pytest.approx((0.1, 0.1))


@given(accuracies)
@settings(max_examples=30, deadline=None)
def test_a_difference_to_oneself_is_nothing(values: list[float]) -> None:
    found = paired_difference(values, values)
    assert (found.mean, found.t_interval.low, found.bootstrap_interval.high) == (0.0, 0.0, 0.0)


def test_the_bootstrap_repeats_itself() -> None:
    values = [0.1, 0.5, 0.2, 0.9, 0.4]
    assert paired_difference(values, [0.0] * 5) == paired_difference(values, [0.0] * 5)


def test_censored_costs_by_hand() -> None:
    """Reached after 10 and 20 rounds, never within 100: survival 1, ⅔ from 10, ⅓ from 20; area 10 + 20/3 + 80/3."""
    found = summarise_costs([Cost(10, True), Cost(20, True), Cost(100, False)], horizon=100)
    assert (found.n, found.reached, found.median) == (3, 2, 20)
    assert found.restricted_mean == pytest.approx(10 + 20 / 3 + 80 / 3)


def test_dropping_those_who_never_arrive_would_flatter() -> None:
    fast_or_never = [Cost(10, True), *[Cost(100, False)] * 4]
    found = summarise_costs(fast_or_never, horizon=100)
    assert found.median == math.inf
    assert found.restricted_mean == pytest.approx(82)
    assert found.watched == 100
    never = summarise_costs([Cost(100, False)] * 3, horizon=100)
    assert (never.reached, never.median, never.restricted_mean) == (0, math.inf, 100)


def test_a_run_cut_short_is_censored_where_it_stopped() -> None:
    """Stopped after 15 of 100 rounds: at risk at 10, not at 20. Survival 1, ⅔ from 10, 0 from 20."""
    found = summarise_costs([Cost(10, True), Cost(15, False), Cost(20, True)], horizon=100)
    assert found.restricted_mean == pytest.approx(10 + 10 * 2 / 3)
    assert np.isnan(restricted([Cost(15, False)], 100))[0]
    assert restricted([Cost(30, True), Cost(100, False), Cost(120, True)], 100).tolist() == [30, 100, 100]


@given(st.lists(st.floats(1, 99), min_size=1, max_size=15), st.integers(0, 10))
@settings(max_examples=50, deadline=None)
def test_the_restricted_mean_is_the_mean_when_all_are_watched_to_the_horizon(
    reached: list[float], never: int
) -> None:
    costs = [Cost(value, True) for value in reached] + [Cost(100, False)] * never
    found = summarise_costs(costs, horizon=100)
    assert found.restricted_mean == pytest.approx(restricted(costs, 100).mean())


def test_the_share_of_the_gap_is_a_ratio_of_means() -> None:
    lower, upper = np.array([0.4, 0.5, 0.6]), np.array([0.5, 0.5, 0.7])
    share, interval = gap_recovered((lower + upper) / 2, lower, upper)
    assert share == pytest.approx(0.5)
    assert interval.low == pytest.approx(0.5)
    assert gap_recovered(upper, lower, upper)[0] == pytest.approx(1.0)
    assert gap_recovered(lower, lower, upper)[0] == pytest.approx(0.0)
    assert math.isnan(gap_recovered(upper, upper, lower)[0])
    assert math.isnan(gap_recovered(lower, lower, lower)[0])
