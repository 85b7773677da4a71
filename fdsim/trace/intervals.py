"""Sets of times as sorted, disjoint intervals [n, 2] in seconds, the form of all on/off logs."""

from __future__ import annotations

import numpy as np

from fdsim.errors import TraceError


def checked(intervals: np.ndarray, place: str) -> np.ndarray:
    """Return the intervals as float64 [n, 2]; raise TraceError if some overlap or are out of order."""
    found = np.asarray(intervals, dtype=np.float64).reshape(-1, 2)
    if not np.isfinite(found).all():
        raise TraceError(place, "a time is not a finite number", "leave that interval out")
    backwards = np.flatnonzero(found[:, 1] < found[:, 0])
    if len(backwards):
        start, end = found[backwards[0]]
        raise TraceError(
            place,
            f"an interval ends before it starts: {start:g} s to {end:g} s",
            "leave it out, or swap the times",
        )
    early = np.flatnonzero(found[1:, 0] < found[:-1, 1])
    if len(early):
        (a, b), (c, d) = found[early[0]], found[early[0] + 1]
        if c < a:
            raise TraceError(
                place, f"time runs back: {c:g} s comes after {a:g} s", "sort the intervals by their start"
            )
        raise TraceError(
            place, f"intervals overlap: {a:g}–{b:g} s and {c:g}–{d:g} s", "make them one, or cut one of them"
        )
    return found[found[:, 1] > found[:, 0]]


def joined(intervals: np.ndarray, *, gap_s: float = 0.0) -> np.ndarray:
    """Join intervals that touch, or that lie at most `gap_s` apart."""
    if len(intervals) < 2:
        return intervals
    new = np.concatenate([[True], intervals[1:, 0] - intervals[:-1, 1] > gap_s])
    last = np.concatenate([np.flatnonzero(new)[1:] - 1, [len(intervals) - 1]])
    return np.column_stack([intervals[new, 0], intervals[last, 1]])


def intersection(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the times that are in both."""
    if not len(first) or not len(second):
        return np.empty((0, 2))
    # Each interval of `first` meets a contiguous run of `second`.
    low = np.searchsorted(second[:, 1], first[:, 0], side="right")
    high = np.searchsorted(second[:, 0], first[:, 1], side="left")
    counts = np.maximum(high - low, 0)
    mine = np.repeat(np.arange(len(first)), counts)
    theirs = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(low, counts)
    start = np.maximum(first[mine, 0], second[theirs, 0])
    end = np.minimum(first[mine, 1], second[theirs, 1])
    return np.asarray(np.column_stack([start, end])[end > start])


def complement(intervals: np.ndarray, begin_s: float, end_s: float) -> np.ndarray:
    """The times between `begin_s` and `end_s` that are in none of them."""
    edges = np.concatenate([[begin_s], intervals.ravel(), [end_s]]).reshape(-1, 2)
    return np.asarray(edges[edges[:, 1] > edges[:, 0]])


def total_s(intervals: np.ndarray) -> float:
    """Return the time they cover, s."""
    return float((intervals[:, 1] - intervals[:, 0]).sum())


def on_at(intervals: np.ndarray, times_s: np.ndarray) -> np.ndarray:
    """Tell for each time whether it lies inside; `times_s` may be in any order."""
    if not len(intervals):
        return np.zeros(len(times_s), dtype=bool)
    index = np.searchsorted(intervals[:, 0], times_s, side="right") - 1
    inside = (index >= 0) & (times_s < intervals[np.maximum(index, 0), 1])
    return np.asarray(inside)
