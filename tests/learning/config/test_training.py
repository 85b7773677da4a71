"""The `[training]` table and its schedules."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pydantic import ValidationError

from fdsim.learning.config.training import Training
from fdsim.learning.local.batches import BatchStream

COUNTS = np.array([5, 7, 18, 1, 19, 10])


@pytest.mark.parametrize("given", [{}, {"local_epochs": 1, "local_steps": 1}])
def test_exactly_one_length(given):
    with pytest.raises(ValidationError, match="exactly one of local_epochs and local_steps"):
        Training(**given)


@pytest.mark.parametrize(
    "training",
    [
        Training(local_epochs=2, batch_size=4),
        Training(local_steps=3, batch_size=4),
        Training(local_steps=7, batch_size=3, batch_growth="linear"),
        Training(local_epochs=1, batch_size=100),
    ],
)
@pytest.mark.parametrize("round_index", [0, 4])
def test_work_is_what_the_batches_hold(training, round_index):
    indices = tuple(np.arange(count) for count in COUNTS)
    steps = training.steps(COUNTS, round_index)
    batches = BatchStream(indices, 0).take(
        np.arange(6), steps, round_index=round_index, batch_size=training.batch_size_in(round_index)
    )
    assert np.array_equal(batches.steps, steps)
    assert np.array_equal(batches.sizes.sum(axis=0), training.samples_per_round(COUNTS, round_index))


def test_epochs_process_every_sample():
    assert np.array_equal(Training(local_epochs=3, batch_size=4).samples_per_round(COUNTS), 3 * COUNTS)


def test_batches_grow_with_the_round():
    training = Training(local_steps=1, batch_size=5, batch_growth="linear")
    assert [training.batch_size_in(t) for t in range(3)] == [5, 10, 15]


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ("constant", [0.1, 0.1, 0.1]),
        ({"kind": "step", "every": 2, "by": 0.1}, [0.1, 0.1, 0.01]),
        ({"kind": "cosine", "rounds": 2, "floor_frac": 0.5}, [0.1, 0.075, 0.05]),
        ({"kind": "inverse", "decay": 1.0}, [0.1, 0.05, 0.1 / 3]),
        ({"kind": "warmup", "rounds": 2}, [0.05, 0.1, 0.1]),
    ],
)
def test_schedules(schedule, rates):
    training = Training(local_steps=1, learning_rate=0.1, schedule=schedule)
    assert np.allclose([training.learning_rate_in(t) for t in range(3)], rates)
    assert Training.model_validate(training.model_dump()) == training
    assert math.isfinite(training.learning_rate_in(10_000))
