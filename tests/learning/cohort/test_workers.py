"""Lanes: side by side, in order, one job each."""

from __future__ import annotations

import threading

import pytest
import torch

from fdsim.learning.cohort.workers import Lane, in_lanes

CPU = torch.device("cpu")


def lanes(count, *, inline=False):
    return [Lane(None, CPU, inline=inline) for _ in range(count)]


@pytest.mark.parametrize("inline", [True, False])
def test_results_come_in_order(inline):
    jobs = [lambda lane, number=number: number for number in range(7)]
    assert list(in_lanes(lanes(3, inline=inline), jobs)) == list(range(7))


def test_two_lanes_work_at_the_same_time():
    """Each job waits for the other; alone, either would wait for ever."""
    meeting = threading.Barrier(2, timeout=30)
    assert sorted(in_lanes(lanes(2), [lambda lane: meeting.wait(), lambda lane: meeting.wait()])) == [0, 1]


def test_a_lane_keeps_torch_to_itself():
    before = torch.get_num_threads()
    assert list(in_lanes(lanes(1), [lambda lane: torch.get_num_threads()])) == [1]
    assert torch.get_num_threads() == before


def test_nothing_runs_ahead_of_what_is_taken():
    """Memory stays at one chunk a lane: at most two jobs have begun before the first result is taken."""
    begun = []
    results = in_lanes(lanes(2), [lambda lane, number=number: begun.append(number) for number in range(6)])
    next(results)
    assert len(begun) <= 3
    results.close()


def test_errors_come_through():
    def fail(lane):
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        list(in_lanes(lanes(2), [fail]))
