"""Workers: side by side, in order, one job each."""

from __future__ import annotations

import threading

import pytest
import torch

from fdsim.learning.cohort.workers import Worker, on_workers

CPU = torch.device("cpu")


def workers(count, *, inline=False):
    return [Worker(None, CPU, inline=inline) for _ in range(count)]


@pytest.mark.parametrize("inline", [True, False])
def test_results_come_in_order(inline):
    jobs = [lambda worker, number=number: number for number in range(7)]
    assert list(on_workers(workers(3, inline=inline), jobs)) == list(range(7))


def test_two_workers_work_at_the_same_time():
    """Each job waits for the other; alone, either would wait for ever."""
    meeting = threading.Barrier(2, timeout=30)
    assert sorted(on_workers(workers(2), [lambda worker: meeting.wait(), lambda worker: meeting.wait()])) == [
        0,
        1,
    ]


def test_a_worker_keeps_torch_to_itself():
    before = torch.get_num_threads()
    assert list(on_workers(workers(1), [lambda worker: torch.get_num_threads()])) == [1]
    assert torch.get_num_threads() == before


def test_nothing_runs_ahead_of_what_is_taken():
    """Memory stays at one chunk a worker: at most two jobs have begun before the first result is taken."""
    begun = []
    results = on_workers(
        workers(2), [lambda worker, number=number: begun.append(number) for number in range(6)]
    )
    next(results)
    assert len(begun) <= 3
    results.close()


def test_errors_come_through():
    def fail(worker):
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        list(on_workers(workers(2), [fail]))
