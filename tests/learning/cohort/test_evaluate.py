"""Evaluation: on the test set, by label, and on each client's label mix."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from fdsim.learning.cohort.evaluate import Evaluator
from fdsim.learning.local.params import flat_of
from fdsim.learning.local.samples import Samples

LABELS = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2, 0])


def evaluator(batch=None):
    """A net that copies its input to its logits, and inputs that are right for some samples only."""
    module = nn.Linear(4, 4)
    with torch.no_grad():
        module.weight.copy_(torch.eye(4))
        module.bias.zero_()
    guesses = np.array([0, 0, 1, 1, 1, 2, 0, 0, 2, 3])
    inputs = np.eye(4, dtype=np.float32)[guesses]
    samples = Samples(inputs, LABELS, accelerator=torch.device("cpu"), dtype=torch.float32)
    mix = np.array([[4.0, 0, 0, 0], [0, 2, 2, 0], [1, 0, 0, 3]])
    found = Evaluator(
        module, samples, label_counts=np.bincount(samples.labels.numpy(), minlength=4), label_mix=mix
    )
    found.batch = batch or found.batch
    return found, flat_of(module)


@pytest.mark.parametrize("batch", [None, 3])
def test_what_one_pass_says(batch):
    judge, params = evaluator(batch)
    found = judge.evaluate(params)
    assert found.accuracy == pytest.approx(0.6)
    assert np.allclose(found.per_class[:3], [2 / 4, 1, 2 / 4])
    assert np.isnan(found.per_class[3])
    right, wrong = np.log(np.e + 3) - 1, np.log(np.e + 3)
    assert found.loss == pytest.approx(0.6 * right + 0.4 * wrong, rel=1e-6)


def test_clients_see_their_own_labels():
    """Client 1 holds labels 1 and 2 in equal parts; the test set has none of client 2's label 3."""
    judge, params = evaluator()
    found = judge.evaluate(params)
    assert np.allclose(found.of_clients(np.arange(3)), [0.5, 0.75, 0.5])
    assert np.allclose(found.of_clients(np.array([1])), [0.75])


def test_the_parameters_given_are_the_ones_judged():
    judge, params = evaluator()
    assert judge.evaluate(-params).accuracy < 0.6
    assert judge.evaluate(params).accuracy == pytest.approx(0.6)
