"""How a cohort will be trained, and what that takes."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from torch import nn

from fdsim.learning.cohort.memory import activations, client_bytes
from fdsim.learning.cohort.plan import CohortSpec, TrainingPlan, plan_for
from fdsim.learning.config.acceleration import Acceleration
from fdsim.learning.config.training import Training
from fdsim.learning.nets.library import CifarCnn, Mlp, MnistCnn, Net, PflCnn
from fdsim.learning.paths import compiled
from fdsim.learning.paths.compiled import Compiled
from fdsim.learning.paths.direct_conv import kernel

CPU, GPU = torch.device("cpu"), torch.device("cuda:0")


def plan(
    net: Net,
    shape,
    *,
    accelerators=(CPU,),
    clients=20,
    batch_size=20,
    module=None,
    data_bytes=0.0,
    **acceleration,
) -> TrainingPlan:
    module = module or net.build(shape, 10, seed=0)
    spec = CohortSpec(
        module, net.cost(shape, 10), batch_size, client_bytes=1e6, clients=clients, data_bytes=data_bytes
    )
    return plan_for(Acceleration(**acceleration), spec, accelerators)


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)


def test_small_nets_are_stacked_on_a_cpu():
    direct = kernel() is not None
    assert plan(CifarCnn(), (3, 32, 32)) == TrainingPlan("stacked", 10, 2, direct=direct)
    assert plan(MnistCnn(), (1, 28, 28), batch_size=5) == TrainingPlan("stacked", 10, 2, direct=direct)


def test_the_kernel_is_for_whole_precision_uncompiled_stacks_on_a_cpu():
    for choice in ({"convolutions": "torch"}, {"compile": True}, {"precision": "bf16"}, {"path": "vmap"}):
        assert not plan(CifarCnn(), (3, 32, 32), **choice).direct


def test_tiny_steps_get_one_worker():
    assert plan(Mlp(), (1, 8, 8), batch_size=10) == TrainingPlan("stacked", 20, 1)


def test_large_nets_are_trained_side_by_side():
    direct = kernel() is not None
    found = plan(PflCnn(), (3, 32, 32), clients=50)
    assert found == TrainingPlan("stacked" if direct else "loop", 1, 2, direct=direct)
    assert plan(PflCnn(), (3, 32, 32), clients=50, convolutions="torch") == TrainingPlan("loop", 1, 2)


def test_a_gpu_takes_what_fits(monkeypatch):
    monkeypatch.setattr("fdsim.learning.cohort.plan.free_bytes", lambda device: 10e6)
    assert plan(CifarCnn(), (3, 32, 32), accelerators=(GPU,)) == TrainingPlan("stacked", 6, 1)
    assert plan(CifarCnn(), (3, 32, 32), accelerators=(GPU, GPU), clients=8) == TrainingPlan("stacked", 4, 2)
    assert plan(CifarCnn(), (3, 32, 32), accelerators=(GPU,), compile="auto").compiled


def test_a_gpu_keeps_room_for_the_data(monkeypatch):
    """The GPU with the least free memory counts, and 5 of its 10 MB are for the data set."""
    free = {GPU: 20e6, torch.device("cuda:1"): 10e6}
    monkeypatch.setattr("fdsim.learning.cohort.plan.free_bytes", free.__getitem__)
    found = plan(CifarCnn(), (3, 32, 32), accelerators=tuple(free), data_bytes=5e6)
    assert found == TrainingPlan("stacked", 3, 2)


def test_unknown_modules_go_by_vmap_on_a_gpu(monkeypatch):
    monkeypatch.setattr("fdsim.learning.cohort.plan.free_bytes", lambda device: 1e9)
    odd = nn.Sequential(nn.Flatten(), nn.Bilinear(4, 4, 4))
    assert plan(Mlp(), (4,), module=odd, accelerators=(GPU,)).path == "vmap"
    assert plan(Mlp(), (4,), module=odd).path == "loop"


def test_the_settings_have_the_last_word():
    chosen = plan(PflCnn(), (3, 32, 32), path="stacked", stack_size=7, compile=True)
    assert chosen == TrainingPlan("stacked", 7, 2, compiled=True)


def test_the_plan_does_not_depend_on_a_stopwatch():
    assert len({plan(CifarCnn(), (3, 32, 32)) for _ in range(3)}) == 1


def test_activations_are_counted():
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 5))
    assert activations(module, (1, 4, 4)) == 8 + 8 + 8 + 5
    assert next(module.parameters()).device.type == "cpu"
    lean, rich = (
        client_bytes(module, Training(local_steps=1, batch_size=size, momentum=0.9), (1, 4, 4))
        for size in (1, 11)
    )
    assert rich - lean == 10 * 4 * (2 * 29 + 3 * 16)


def test_a_failing_compiler_is_said_and_survived(monkeypatch, caplog):
    def broken(function):
        def call(*arguments):
            raise RuntimeError("no compiler\nhere")

        return call

    monkeypatch.setattr(compiled.torch, "compile", broken)
    double = Compiled(lambda x: 2 * x)
    with caplog.at_level(logging.WARNING, logger="fdsim.learning"):
        assert [double(1), double(2)] == [2, 4]
    assert [record.message for record in caplog.records] == [
        "torch.compile failed, training continues without it: no compiler"
    ]


def test_errors_of_the_function_itself_come_through(monkeypatch):
    monkeypatch.setattr(compiled.torch, "compile", lambda function: function)

    def fail(x):
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        Compiled(fail)(1)


@pytest.mark.slow
def test_compiled_training_is_the_same(monkeypatch):
    monkeypatch.undo()
    from fdsim.data.datasets import Synthetic
    from fdsim.learning.cohort.cohort import CohortTrainer

    data = Synthetic(shape=(1, 4, 4), train_samples=60, test_samples=10).load()
    training, indices = Training(local_steps=2, batch_size=5), tuple(np.split(np.arange(60), 6))
    found = []
    for choice in (False, True):
        acceleration = Acceleration(device="cpu", precision="float64", compile=choice)
        trainer = CohortTrainer(Mlp(hidden=(3,)), data, indices, training, acceleration, seed=0)
        found.append(
            torch.cat([chunk.updates for chunk in trainer.train(trainer.initial(), np.arange(6), 0)])
        )
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-9)
