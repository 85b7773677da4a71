"""Workers: side by side, in order, one chunk each."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

from fdsim.learning.cohort.cohort import CohortTrainer
from fdsim.learning.cohort.plan import TrainingPlan
from fdsim.learning.cohort.workers import Worker
from fdsim.learning.config.training import Training
from fdsim.learning.local.batches import BatchStream

CPU = torch.device("cpu")


def trained(count, jobs, *, inline=False):
    """What a cohort of one client a chunk yields on `count` workers, with jobs of the client in place of training."""

    class Cohort(CohortTrainer):
        def __init__(self):
            self._training, self.plan = Training(local_steps=1), TrainingPlan("loop", 1, count)
            self._stream = BatchStream(tuple(np.arange(3) for _ in jobs), 0)
            self._workers = [Worker(None, CPU, inline=inline) for _ in range(count)]

        def _train_chunk(self, start, clients, steps, round_index, worker):
            return jobs[clients[0]]()

    return Cohort().train(torch.zeros(1), np.arange(len(jobs)), 0)


@pytest.mark.parametrize("inline", [True, False])
def test_results_come_in_order(inline):
    jobs = [lambda number=number: number for number in range(7)]
    assert list(trained(3, jobs, inline=inline)) == list(range(7))


def test_two_workers_work_at_the_same_time():
    """Each job waits for the other; alone, either would wait for ever."""
    meeting = threading.Barrier(2, timeout=30)
    assert sorted(trained(2, [meeting.wait, meeting.wait])) == [0, 1]


def test_a_worker_keeps_torch_to_itself():
    before = torch.get_num_threads()
    assert list(trained(1, [torch.get_num_threads])) == [1]
    assert torch.get_num_threads() == before


def test_nothing_runs_ahead_of_what_is_taken():
    """Memory stays at one chunk a worker: at most two jobs have begun before the first result is taken."""
    begun = []
    results = trained(2, [lambda number=number: begun.append(number) for number in range(6)])
    next(results)
    assert len(begun) <= 3
    results.close()


def test_errors_come_through():
    def fail():
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        list(trained(2, [fail]))
