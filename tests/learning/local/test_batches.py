"""The batch stream belongs to (seed, client, round) and to nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdsim.learning.local.batches import BatchStream

SHARDS = tuple(np.split(np.arange(100, 160), [5, 12, 30, 31, 50]))


def own(batches, place):
    """A client's batches as lists of rows, without the padding."""
    steps = zip(batches.rows[:, place], batches.sizes[:, place], strict=True)
    return [rows[:size].tolist() for rows, size in steps if size]


def take(clients, steps, *, seed=1, round_index=0, batch_size=4):
    stream = BatchStream(SHARDS, seed)
    return stream.take(np.array(clients), np.array(steps), round_index=round_index, batch_size=batch_size)


def test_a_pass_shows_every_sample_once():
    for client, rows in enumerate(SHARDS):
        steps = -(-len(rows) // 4)
        (batches,) = [own(take([client], [2 * steps]), 0)]
        for one_pass in (batches[:steps], batches[steps:]):
            assert sorted(row for batch in one_pass for row in batch) == rows.tolist()
            assert all(len(batch) == 4 for batch in one_pass[:-1])
        if len(rows) > 4:
            assert batches[:steps] != batches[steps:]


@settings(max_examples=40, deadline=None)
@given(
    clients=st.lists(st.integers(0, 5), min_size=1, max_size=6, unique=True),
    steps=st.lists(st.integers(0, 9), min_size=6, max_size=6),
    batch_size=st.integers(1, 40),
    round_index=st.integers(0, 1000),
)
def test_company_changes_nothing(clients, steps, batch_size, round_index):
    """A client's batches are the same alone and among others, whatever those do."""
    about = {"round_index": round_index, "batch_size": batch_size}
    together = take(clients, [steps[client] for client in clients], **about)
    for place, client in enumerate(clients):
        alone = take([client], [steps[client]], **about)
        assert own(together, place) == own(alone, 0)
        assert together.keys[place] == alone.keys[0]
        assert len(own(alone, 0)) == steps[client]


def test_seed_client_and_round_change_everything():
    base = own(take([4], [5]), 0)
    assert base != own(take([4], [5], seed=2), 0)
    assert base != own(take([4], [5], round_index=1), 0)
    twins = BatchStream((np.arange(20), np.arange(20)), 1)
    both = twins.take(np.array([0, 1]), np.array([5, 5]), round_index=0, batch_size=4)
    assert own(both, 0) != own(both, 1)


def test_more_steps_only_add():
    assert own(take([2], [9]), 0)[:4] == own(take([2], [4]), 0)


def test_weights_average_over_real_samples():
    batches = take([0, 4], [2, 5])
    assert np.allclose(batches.weights.sum(axis=2), batches.sizes > 0)
    assert batches.sizes[:, 0].tolist() == [4, 1, 0, 0, 0]
    assert batches.steps.tolist() == [2, 5]
    # Padding is some row of the client's own.
    assert set(batches.rows[:, 0].ravel()) <= set(SHARDS[0])


def test_shuffles_are_uniform():
    """Over many rounds every sample is first equally often: χ² with 4 degrees of freedom stays below its 99.9 % point."""
    stream = BatchStream((np.arange(5),), seed=7)
    first = [
        stream.take(np.array([0]), np.array([1]), round_index=r, batch_size=1).rows[0, 0, 0]
        for r in range(2000)
    ]
    counts = np.bincount(first, minlength=5)
    assert ((counts - 400) ** 2 / 400).sum() < 18.5


@pytest.mark.parametrize("steps", [[0], [0, 0]])
def test_nobody_working_is_fine(steps):
    assert take(range(len(steps)), steps).rows.shape[0] == 0
