"""Clients that are trained one by one are dealt out to all workers, a chunk for all of them."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

from fdsim.learning.cohort import dealing
from fdsim.learning.cohort.dealing import train_dealt, worth_dealing
from fdsim.learning.cohort.workers import Worker

CPU = torch.device("cpu")
START = torch.zeros(3)


def note(worker, part, steps):
    """In place of training: a client's update is its number, its loss how many steps it takes."""
    part.updates.copy_(torch.as_tensor(part.clients, dtype=torch.float32).unsqueeze(1).expand(-1, 3))
    part.losses.copy_(torch.as_tensor(steps, dtype=torch.float32))


def dealt(clients, count=2, train_part=note, steps=None):
    workers = [Worker(None, CPU, inline=False) for _ in range(count)]
    clients = np.asarray(clients)
    steps = 100 - np.arange(len(clients)) if steps is None else steps
    return train_dealt(workers, START, clients, steps, train_part)


def test_one_chunk_holds_all_and_each_worker_gets_every_other_client():
    (chunk,) = dealt([7, 3, 9, 1, 5])
    assert chunk.clients.tolist() == [7, 9, 5, 3, 1]
    assert chunk.updates[:, 0].tolist() == [7, 9, 5, 3, 1]
    assert chunk.losses.tolist() == [100, 98, 96, 99, 97]
    assert chunk.last


@pytest.mark.parametrize("clients", [0, 1, 2])
def test_fewer_clients_than_workers(clients):
    chunks = list(dealt(np.arange(clients), count=3))
    assert [chunk.clients.tolist() for chunk in chunks] == ([list(range(clients))] if clients else [])


def test_workers_train_at_the_same_time():
    """Each part waits for the other; alone, either would wait for ever."""
    meeting = threading.Barrier(2, timeout=30)
    assert len(list(dealt([0, 1], train_part=lambda *_: meeting.wait()))) == 1


def test_memory_is_bounded(monkeypatch):
    """Chunks of four clients' updates; one is trained while another is taken, and no third has begun."""
    monkeypatch.setattr(dealing, "_CHUNK_BYTES", 4 * START.nbytes)
    begun = []

    def begin(worker, part, steps):
        begun.extend(part.clients.tolist())
        note(worker, part, steps)

    chunks = dealt(np.arange(12), train_part=begin)
    first = next(chunks)
    assert sorted(first.clients) == [0, 1, 2, 3]
    assert not first.last
    assert max(begun) < 8
    others = list(chunks)
    assert [chunk.last for chunk in others] == [False, True]
    assert sorted(np.concatenate([chunk.clients for chunk in [first, *others]])) == list(range(12))


def test_large_nets_are_not_dealt(monkeypatch):
    """Chunks for four clients of each worker would take more memory than stacks do."""
    workers = [Worker(None, CPU, inline=False) for _ in range(2)]
    monkeypatch.setattr(dealing, "_CHUNK_BYTES", 8 * START.nbytes)
    assert worth_dealing(workers, START)
    assert not worth_dealing(workers, torch.zeros(4))


def test_errors_come_through():
    def fail(worker, part, steps):
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        list(dealt([0, 1], train_part=fail))
