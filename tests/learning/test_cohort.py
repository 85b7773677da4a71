"""One meaning, whatever the path: cohorts trained plainly and stacked agree."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fdsim.data.datasets import Synthetic
from fdsim.learning.acceleration import Acceleration
from fdsim.learning.cohort import CohortTrainer
from fdsim.learning.nets import CifarCnn, Mlp, MnistCnn
from fdsim.learning.training import Training

UNEQUAL = tuple(np.split(np.arange(60), [5, 12, 30, 31, 50]))


def trainer(net, training, *, shape=(1, 16, 16), indices=UNEQUAL, **acceleration):
    data = Synthetic(shape=shape, train_samples=60, test_samples=40)
    return CohortTrainer(
        net,
        data.load(),
        indices,
        training,
        Acceleration(device="cpu", **{"precision": "float64", **acceleration}),
        seed=3,
    )


def updates(cohort, clients=range(6), **keywords):
    chunks = list(cohort.train(cohort.initial(), np.array(clients), 2, **keywords))
    order = np.argsort(np.concatenate([chunk.clients for chunk in chunks]))
    return (
        torch.cat([chunk.updates for chunk in chunks])[order],
        torch.cat([chunk.losses for chunk in chunks])[order],
    )


TRAININGS = [
    Training(local_epochs=2, batch_size=4),
    Training(local_steps=3, batch_size=4, momentum=0.9, weight_decay=0.01),
    Training(
        local_epochs=1, batch_size=3, batch_growth="linear", proximal_mu=0.5, clip_norm=0.5, momentum=0.5
    ),
]


@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.parametrize(
    ("net", "shape"), [(Mlp(hidden=(7, 5)), (1, 4, 4)), (MnistCnn(), (1, 16, 16)), (CifarCnn(), (3, 16, 16))]
)
def test_all_paths_train_alike(net, shape, training):
    """Plain, vmap and stacked agree to 1e-9 in float64, whatever the stack size, with unequal clients."""
    plain, plain_losses = updates(trainer(net, training, shape=shape, path="plain"))
    assert plain.abs().amax(dim=1).gt(1e-4).all()
    for path, stack_size in (("stacked", 1), ("stacked", 4), ("stacked", 6), ("vmap", 6)):
        found, losses = updates(trainer(net, training, shape=shape, path=path, stack_size=stack_size))
        torch.testing.assert_close(found, plain, rtol=0, atol=1e-9)
        torch.testing.assert_close(losses, plain_losses, rtol=0, atol=1e-9)
