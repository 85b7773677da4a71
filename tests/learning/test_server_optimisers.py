"""Server optimisers: against torch.optim where it has the same rule, against the formula where not."""

from __future__ import annotations

import pytest
import torch

from fdsim.catalogue import MENU, build

CPU = torch.device("cpu")


def walk(optimiser, updates, learning_rate=0.5):
    params, state = torch.zeros(3, dtype=torch.float64), optimiser.start(3, CPU, torch.float64)
    for update in updates:
        params, state = optimiser.step(params, update, state, learning_rate)
    return params


UPDATES = [
    torch.tensor(u, dtype=torch.float64) for u in ([0.1, -0.2, 0.0], [0.3, 0.1, -0.1], [-0.2, 0.4, 0.2])
]


def test_plain_adds():
    assert torch.allclose(walk(build("optimiser", "plain"), UPDATES), 0.5 * sum(UPDATES))


def by_torch(make):
    params = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    optimiser = make([params])
    for update in UPDATES:
        params.grad = -update
        optimiser.step()
    return params.detach()


def test_momentum_is_torchs():
    truth = by_torch(lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.9))
    assert torch.allclose(walk(build("optimiser", "momentum"), UPDATES), truth)


def test_adagrad_is_torchs():
    """torch adds its ε where FedAdagrad has τ, and starts its sum where it is told to."""
    truth = by_torch(lambda p: torch.optim.Adagrad(p, lr=0.5, eps=1e-3, initial_accumulator_value=1e-6))
    assert torch.allclose(walk(build("optimiser", "fedadagrad"), UPDATES), truth)


def test_adam_and_yogi_by_hand():
    mean = moment_adam = moment_yogi = 0.0
    adam = yogi = torch.zeros(3, dtype=torch.float64)
    moment_adam = moment_yogi = torch.full((3,), 1e-6, dtype=torch.float64)
    for u in UPDATES:
        mean = 0.9 * mean + 0.1 * u
        moment_adam = 0.99 * moment_adam + 0.01 * u**2
        moment_yogi = moment_yogi - 0.01 * u**2 * torch.sign(moment_yogi - u**2)
        adam = adam + 0.5 * mean / (moment_adam.sqrt() + 1e-3)
        yogi = yogi + 0.5 * mean / (moment_yogi.sqrt() + 1e-3)
    assert torch.allclose(walk(build("optimiser", "fedadam"), UPDATES), adam)
    assert torch.allclose(walk(build("optimiser", "fedyogi"), UPDATES), yogi)


@pytest.mark.parametrize("kind", MENU["optimiser"])
def test_contract(kind):
    """Arguments stay as they are, states can be saved, and zero updates move nothing from rest."""
    optimiser = build("optimiser", kind)
    state = optimiser.start(3, CPU, torch.float32)
    params, update = torch.ones(3), torch.full((3,), 0.1)
    before = {name: value.clone() for name, value in state.items()}
    moved, after = optimiser.step(params, update, state, 1.0)
    assert params.equal(torch.ones(3))
    assert all(value.equal(before[name]) for name, value in state.items())
    assert after.keys() == state.keys()
    assert (moved > params).all()
    still, _ = optimiser.step(params, torch.zeros(3), state, 1.0)
    assert still.equal(params)
