"""One meaning, whatever the path: cohorts trained in a loop, by vmap and stacked agree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from fdsim.data.datasets import Examples, Synthetic
from fdsim.errors import ScenarioError
from fdsim.learning.cohort.cohort import CohortTrainer
from fdsim.learning.config.acceleration import Acceleration
from fdsim.learning.config.training import Training
from fdsim.learning.nets.library import CifarCnn, DepthwiseCnn, Mlp, MnistCnn, Net, PflCnn, ResNet
from fdsim.learning.nets.residual import Residual
from fdsim.workload import NetCost

UNEQUAL = tuple(np.split(np.arange(60), [5, 12, 30, 31, 50]))
TINY = Training(local_steps=2, batch_size=4)


class Handmade(Net):
    """A net for tests, given as a function."""

    kind: str = "handmade"
    make: object

    def module(self, input_shape, classes):
        return self.make()


def everything():
    """Every layer the stacked path knows, for inputs of 3×8×8."""
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.GroupNorm(2, 4), nn.ReLU(inplace=True)),
        nn.Dropout(0.3),
        nn.Dropout2d(0.25),
        Residual(nn.Conv2d(4, 4, 3, padding=1, groups=2), nn.Tanh(), nn.Dropout(0.2)),
        nn.AvgPool2d(2),
        nn.Conv2d(4, 6, 2, stride=2, dilation=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Identity(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.LayerNorm(6),
        nn.Linear(6, 5, bias=False),
        nn.GELU(),
        nn.Dropout(0.5),
        nn.Linear(5, 10),
    )


class Skip(nn.Module):
    """A module of a user's own, which only vmap and the loop can train."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.drop = nn.Linear(192, 10), nn.Linear(192, 10), nn.Dropout(0.4)

    def forward(self, inputs):
        flat = inputs.flatten(1)
        return self.first(flat) * torch.sigmoid(self.second(self.drop(flat)))


def text():
    return nn.Sequential(
        nn.Embedding(9, 4), nn.LayerNorm(4, elementwise_affine=False), nn.Flatten(), nn.Linear(12, 10)
    )


def examples_of(shape):
    if len(shape) == 1:
        rng = np.random.default_rng(0)
        tokens, labels = rng.integers(0, 9, (60, *shape)), rng.integers(0, 10, 60)
        return Examples(tokens, labels, tokens[:20], labels[:20], classes=10)
    return Synthetic(shape=shape, train_samples=60, test_samples=40).load()


def trainer(net, training, *, shape=(1, 4, 4), indices=UNEQUAL, **acceleration):
    choices = Acceleration(**{"device": "cpu", "precision": "float64", **acceleration})
    return CohortTrainer(net, examples_of(shape), indices, training, choices, seed=3)


def results(cohort, clients=range(6), round_index=2, **keywords):
    """Update and losses in the order of the clients."""
    chunks = list(cohort.train(cohort.initial(), np.array(clients), round_index, **keywords))
    order = np.argsort(np.concatenate([chunk.clients for chunk in chunks]))
    return (
        torch.cat([chunk.updates for chunk in chunks])[order],
        torch.cat([chunk.losses for chunk in chunks])[order],
    )


def agree(net, training, shape, *ways, **keywords):
    plain = results(trainer(net, training, shape=shape, path="loop"), **keywords)
    assert plain[0].abs().amax() > 1e-4
    for path, stack_size in ways:
        found = results(trainer(net, training, shape=shape, path=path, stack_size=stack_size), **keywords)
        torch.testing.assert_close(found, plain, rtol=0, atol=1e-9)


TRAININGS = [
    Training(local_epochs=2, batch_size=4),
    Training(local_steps=3, batch_size=4, momentum=0.9, weight_decay=0.01),
    Training(
        local_epochs=1, batch_size=3, batch_growth="linear", proximal_mu=0.5, clip_norm=0.5, momentum=0.5
    ),
]
WAYS = (("stacked", 1), ("stacked", 4), ("stacked", 6), ("vmap", 2), ("vmap", 6))


@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.parametrize(
    ("net", "shape"),
    [(Mlp(hidden=(7, 5)), (1, 4, 4)), (MnistCnn(hidden=5), (1, 16, 16)), (CifarCnn(), (3, 16, 16))],
)
def test_all_paths_train_alike(net, shape, training):
    """To 1e-9 in float64, whatever the stack size, with unequal clients."""
    agree(net, training, shape, *(WAYS if net.kind == "mlp" else WAYS[1:2]))


@pytest.mark.parametrize(
    ("net", "shape", "ways"),
    [
        (Handmade(make=everything), (3, 8, 8), WAYS[1:4]),
        (Handmade(make=text), (3,), WAYS[1:4]),
        (Handmade(make=Skip), (3, 8, 8), WAYS[3:]),
        (MnistCnn(hidden=5, dropout=0.5), (1, 16, 16), WAYS[1:4]),
        (DepthwiseCnn(width=8, dropout=0.2), (3, 8, 8), WAYS[1:4]),
        (ResNet(width=8, stages=2), (3, 8, 8), WAYS[1:4]),
        (PflCnn(), (3, 8, 8), WAYS[:2]),
    ],
    ids=["everything", "text", "skip", "mnist", "depthwise", "resnet", "pfl"],
)
def test_all_layers_train_alike(net, shape, ways):
    agree(net, TINY, shape, *ways)


def test_partial_work_is_fewer_steps():
    """A client that finished 60 % of 5 steps has done exactly its first 3."""
    fracs = np.array([1.0, 0.6, 0.0, 0.99, 0.2, 1.0])
    training = Training(local_steps=5, batch_size=4, momentum=0.9)
    agree(Mlp(), training, (1, 4, 4), *WAYS, work_frac=fracs)
    updates, losses = results(trainer(Mlp(), training), work_frac=fracs)
    three, three_losses = results(trainer(Mlp(), training.model_copy(update={"local_steps": 3})))
    torch.testing.assert_close(updates[1], three[1], rtol=0, atol=1e-12)
    torch.testing.assert_close(losses[1], three_losses[1], rtol=0, atol=1e-12)
    assert updates[2].eq(0).all()
    assert losses[2] == 0


def test_one_step_on_everything_is_gradient_descent():
    """With one step over all of a client's data the update is −η times the gradient of its loss."""
    cohort = trainer(Mlp(hidden=()), Training(local_steps=1, batch_size=99, learning_rate=0.3))
    updates, losses = results(cohort)
    data = examples_of((1, 4, 4))
    weight, bias = cohort.initial().split([160, 10])
    for client, rows in enumerate(UNEQUAL):
        inputs = torch.from_numpy(data.train_inputs[rows]).double().flatten(1)
        labels = torch.from_numpy(data.train_labels[rows])
        w, b = weight.view(10, 16).clone().requires_grad_(), bias.clone().requires_grad_()
        loss = nn.functional.cross_entropy(inputs @ w.T + b, labels)
        loss.backward()
        truth = -0.3 * torch.cat([w.grad.flatten(), b.grad])
        torch.testing.assert_close(updates[client], truth, rtol=0, atol=1e-12)
        torch.testing.assert_close(losses[client], loss.detach(), rtol=0, atol=1e-12)


def test_company_and_order_change_nothing():
    cohort = trainer(Mlp(), TINY)
    everybody, _ = results(cohort)
    some, _ = results(cohort, clients=[4, 1])
    torch.testing.assert_close(some, everybody[[1, 4]], rtol=0, atol=1e-12)
    again, _ = results(cohort)
    assert again.equal(everybody)
    assert not results(cohort, round_index=3)[0].equal(everybody)


def test_repeats_to_the_bit():
    """Two trainers made alike give the same bits in float32, in workers."""
    first, second = (trainer(CifarCnn(), TINY, shape=(3, 16, 16), precision="float32") for _ in range(2))
    assert results(first)[0].equal(results(second)[0])


def test_nobody_to_train():
    assert list(trainer(Mlp(), TINY).train(trainer(Mlp(), TINY).initial(), np.array([], dtype=int), 0)) == []


def test_trouble_is_marked():
    """A diverging client's loss is NaN, the others' are not; that is for the engine to stop on."""
    data = examples_of((1, 4, 4))
    inputs = data.train_inputs.copy()
    inputs[UNEQUAL[2]] = 1e30
    data = replace(data, train_inputs=inputs)
    cohort = CohortTrainer(
        Mlp(),
        data,
        UNEQUAL,
        Training(local_epochs=1, batch_size=4, learning_rate=1e10),
        Acceleration(device="cpu"),
        0,
    )
    _, losses = results(cohort)
    assert losses[2].isnan()


def test_stacking_an_unknown_module_is_refused():
    with pytest.raises(ScenarioError, match="does not support all layers"):
        trainer(Handmade(make=Skip), TINY, shape=(3, 8, 8), path="stacked")


def test_batch_norm_is_refused():
    net = Handmade(
        make=lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 10))
    )
    with pytest.raises(ScenarioError, match="GroupNorm"):
        trainer(net, TINY)


class Priced(Handmade):
    """A net that says itself what it costs, so that nobody has run it before it trains."""

    def cost(self, input_shape, classes):
        return NetCost(forward_flops=100.0, depthwise_frac=0.0, parameters=10)


def test_an_own_net_with_a_cost_of_its_own_is_tried_before_it_trains():
    net = Priced(make=lambda: nn.Sequential(nn.Flatten(), nn.Linear(7, 10)))
    with pytest.raises(ScenarioError, match=r"does not take inputs of shape \(1, 4, 4\)"):
        trainer(net, TINY)


def test_grey_levels_are_scaled_on_the_accelerator():
    data = examples_of((1, 4, 4))
    grey = (np.clip(data.train_inputs, -1, 1) * 127.5 + 127.5).round().astype(np.uint8)
    floats = grey.astype(np.float64) / 127.5 - 1
    made = [
        CohortTrainer(
            Mlp(),
            Examples(inputs, data.train_labels, inputs[:9], data.train_labels[:9], 10),
            UNEQUAL,
            TINY,
            Acceleration(device="cpu", precision="float64"),
            3,
        )
        for inputs in (grey, floats)
    ]
    torch.testing.assert_close(results(made[0]), results(made[1]), rtol=0, atol=1e-9)
    start = made[0].initial()
    assert made[0].evaluate(start).loss == pytest.approx(made[1].evaluate(start).loss, abs=1e-9)
