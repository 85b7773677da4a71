"""Interval arithmetic against counting seconds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fdsim.trace.intervals import intersection, joined, on_at, total_s

intervals = st.lists(st.integers(0, 100), min_size=0, max_size=16, unique=True).map(
    lambda edges: np.array(sorted(edges)[: len(edges) // 2 * 2], dtype=float).reshape(-1, 2)
)


@given(intervals, intervals)
def test_interval_arithmetic_agrees_with_counting_seconds(a: np.ndarray, b: np.ndarray) -> None:
    seconds = np.arange(100) + 0.5
    both = intersection(a, b)
    np.testing.assert_array_equal(on_at(both, seconds), on_at(a, seconds) & on_at(b, seconds))
    assert total_s(both) == on_at(both, seconds).sum()
    np.testing.assert_array_equal(on_at(joined(a), seconds), on_at(a, seconds))
