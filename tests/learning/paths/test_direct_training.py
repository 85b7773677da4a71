"""Whole local rounds by the kernel are those of the plain loop, and are left to torch where it cannot do them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from fdsim.learning.local.batches import BatchStream
from fdsim.learning.local.keyed_dropout import KeyedDropout
from fdsim.learning.local.params import ParameterLayout, flat_of
from fdsim.learning.local.samples import Samples
from fdsim.learning.local.sgd import SgdSettings
from fdsim.learning.nets.residual import Residual
from fdsim.learning.paths.direct_conv import kernel
from fdsim.learning.paths.direct_training import DirectTraining
from fdsim.learning.paths.execution import ExecutionOptions
from fdsim.learning.paths.loop import LoopTrainer
from fdsim.learning.paths.stacked import StackedTrainer
from fdsim.learning.paths.stacking import stack_of

CPU = torch.device("cpu")
PLAIN = SgdSettings(learning_rate=0.1, momentum=0.0, weight_decay=0.0, proximal_mu=0.0, clip_norm=None)
needs_kernel = pytest.mark.skipif(kernel() is None, reason="there is no C compiler")

#: Nets for images of 3 × 13 × 12.
NETS = {
    "pooled": lambda: nn.Sequential(
        *(
            nn.Conv2d(3, 5, 3),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(5, 9, (2, 3)),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ),
        *(nn.Flatten(), nn.Linear(18, 11), nn.ReLU(), nn.Linear(11, 4)),
    ),
    "not pooled": lambda: nn.Sequential(
        *(nn.Conv2d(3, 7, 3), nn.ReLU(), nn.Conv2d(7, 4, 3, bias=False), nn.Flatten(), nn.Linear(288, 4)),
    ),
    "pooled last": lambda: nn.Sequential(
        *(nn.Conv2d(3, 9, 3), nn.ReLU(), nn.Conv2d(9, 10, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(160, 70), nn.ReLU(), nn.Linear(70, 4, bias=False)),
    ),
    "pooled first": lambda: nn.Sequential(
        *(nn.Sequential(nn.Conv2d(3, 2, 2, bias=False), nn.MaxPool2d(2)), nn.Conv2d(2, 6, 4), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(36, 4), nn.ReLU()),
    ),
    "one pixel": lambda: nn.Sequential(
        *(nn.Conv2d(3, 3, (13, 12)), nn.ReLU(), nn.Flatten(), nn.Linear(3, 4))
    ),
}
OTHERS = {
    "dropout": lambda: nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), KeyedDropout(0.5), nn.Linear(220, 4)),
    "padding": lambda: nn.Sequential(nn.Conv2d(3, 2, 3, padding=1), nn.Flatten(), nn.Linear(312, 4)),
    "a residual block": lambda: nn.Sequential(
        nn.Conv2d(3, 2, 3), nn.Flatten(), Residual(nn.Linear(220, 220)), nn.Linear(220, 4)
    ),
    "images to the end": lambda: nn.Sequential(nn.Conv2d(3, 4, (13, 12)), nn.Flatten()),
    "rows of an image": lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.Linear(10, 4), nn.Flatten()),
    "no convolution": lambda: nn.Sequential(nn.Flatten(), nn.Linear(468, 4)),
    "a ReLU of its own": lambda: nn.Sequential(
        nn.Conv2d(3, 2, 3), nn.Flatten(), nn.ReLU(), nn.Linear(220, 4)
    ),
}


def samples(dtype: torch.dtype = torch.float64, *, grey: bool = True) -> Samples:
    rng = np.random.default_rng(0)
    inputs = rng.integers(0, 256, (60, 3, 13, 12), dtype=np.uint8)
    given = inputs if grey else inputs / 100.0
    return Samples(given, rng.integers(0, 4, 60), accelerator=CPU, dtype=dtype, channels_last=True)


def direct(module: nn.Module, given: Samples) -> DirectTraining | None:
    net = stack_of(module, direct=True)
    assert net is not None
    return DirectTraining.of(net, given, ParameterLayout.of(module).size)


def both(module: nn.Module, given: Samples, batch_size: int):
    """Train three clients of 9, 21 and 30 samples for 9, 5 and no steps on both paths."""
    start = flat_of(module)
    stream = BatchStream(tuple(np.split(np.arange(60), [9, 30])), 3)
    batches = stream.take(np.arange(3), np.array([9, 5, 0]), round_index=1, batch_size=batch_size)
    ours = direct(module, given)
    assert ours is not None
    theirs = LoopTrainer(module, given, ExecutionOptions(CPU))
    return ours.train(start, batches, PLAIN), theirs.train(start, batches, PLAIN)


@needs_kernel
@pytest.mark.parametrize("batch_size", [1, 5, 13])
@pytest.mark.parametrize("name", NETS)
def test_local_rounds_are_those_of_the_loop(name, batch_size):
    """Last batches of a pass are short, and clients take different numbers of steps."""
    torch.manual_seed(0)
    ours, theirs = both(NETS[name]().double(), samples(), batch_size)
    assert theirs[0][:2].abs().amax() > 1e-3
    for mine, its in zip(ours, theirs, strict=True):
        assert torch.allclose(mine, its, rtol=0, atol=1e-12)


@needs_kernel
@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("grey", [False, True])
def test_in_single_precision_too(name, grey):
    torch.manual_seed(0)
    ours, theirs = both(NETS[name](), samples(torch.float32, grey=grey), 8)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@needs_kernel
def test_a_layer_wider_than_the_cache():
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 24, 2), nn.ReLU(), nn.Flatten(), nn.Linear(3168, 400), nn.Linear(400, 4)
    )
    ours, theirs = both(module.double(), samples(), 7)
    for mine, its in zip(ours, theirs, strict=True):
        assert torch.allclose(mine, its, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", OTHERS)
def test_other_nets_are_left_to_torch(name):
    assert direct(OTHERS[name](), samples(torch.float32)) is None


def test_shared_parameters_are_left_to_torch():
    shared = nn.Linear(4, 4)
    module = nn.Sequential(nn.Conv2d(3, 4, (13, 12)), nn.Flatten(), shared, nn.ReLU(), shared)
    net = stack_of(module, direct=True)
    assert net is not None
    assert DirectTraining.of(net, samples(torch.float32), len(flat_of(module))) is None


@needs_kernel
@pytest.mark.parametrize(
    "more", [{"momentum": 0.9}, {"weight_decay": 0.1}, {"proximal_mu": 0.2}, {"clip_norm": 0.1}], ids=str
)
def test_more_than_the_gradient_is_left_to_torch(more, monkeypatch):
    """The stacked path takes over, with the kernel's convolutions."""
    torch.manual_seed(0)
    module, given = NETS["pooled"]().double(), samples()
    settings = SgdSettings(**{**vars(PLAIN), **more})
    batches = BatchStream((np.arange(20), np.arange(20, 60)), 3).take(
        np.arange(2), np.array([4, 3]), round_index=0, batch_size=8
    )
    monkeypatch.setattr(DirectTraining, "train", None)
    stacked = StackedTrainer(module, given, ExecutionOptions(CPU, direct=True))
    loop = LoopTrainer(module, given, ExecutionOptions(CPU))
    found, expected = (each.train(flat_of(module), batches, settings) for each in (stacked, loop))
    for mine, its in zip(found, expected, strict=True):
        assert torch.allclose(mine, its, rtol=0, atol=1e-12)


@needs_kernel
def test_a_client_that_diverges_takes_no_other_along():
    torch.manual_seed(0)
    module, given = NETS["pooled"](), samples(torch.float32, grey=False)
    given.inputs[:9] = 1e30
    (updates, losses), (_, expected) = both(module, given, 5)
    assert expected[0].isnan()
    assert losses[0].isnan()
    assert not updates[0].isfinite().all()
    assert updates[1:].isfinite().all()
    assert losses[1:].isfinite().all()
