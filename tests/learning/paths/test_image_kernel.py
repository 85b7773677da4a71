"""The kernel for padded convolutions, group norms and nets of them gives what torch gives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from fdsim.data.datasets import Examples
from fdsim.kernels import c_kernel
from fdsim.learning.cohort.cohort import CohortTrainer
from fdsim.learning.config.acceleration import Acceleration
from fdsim.learning.config.training import Training
from fdsim.learning.local.samples import Samples
from fdsim.learning.nets.library import DepthwiseCnn, Net, ResNet
from fdsim.learning.nets.residual import Residual
from fdsim.learning.paths import direct_conv, image_kernel
from fdsim.learning.paths.group_norm import DirectNorm, NormShape
from fdsim.learning.paths.image_kernel import kernel
from fdsim.learning.paths.image_net import ImageNet
from fdsim.learning.paths.padded_conv import PaddedConv, PaddedShape
from fdsim.learning.paths.stacking import kernels_of, stack_of

needs_kernel = pytest.mark.skipif(kernel() is None, reason="there is no C compiler")


def random_leaf(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=dtype, generator=generator).requires_grad_()


def same(ours, theirs, leaves, *, atol: float) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=atol)
    way_back = torch.randn(theirs.shape, dtype=theirs.dtype, generator=torch.Generator().manual_seed(9))
    found = torch.autograd.grad(ours, leaves, way_back)
    for mine, its in zip(found, torch.autograd.grad(theirs, leaves, way_back), strict=True):
        torch.testing.assert_close(mine, its, rtol=0, atol=atol)


def convolved(x, w, b, shape: PaddedShape) -> torch.Tensor:
    """The same by torch: x [C, inputs, H, W, B], w [C, outputs, inputs, rows, columns], b [C, outputs] or None."""
    padding = (shape.padding_down, shape.padding_across)
    stride = (shape.stride_down, shape.stride_across)
    return torch.stack(
        [
            functional.conv2d(
                x[c].permute(3, 0, 1, 2), w[c], None if b is None else b[c], stride, padding
            ).permute(1, 2, 3, 0)
            for c in range(shape.clients)
        ]
    )


@needs_kernel
@pytest.mark.parametrize(
    ("padding", "stride"),
    [
        *(((0, 0), (1, 1)), ((1, 1), (1, 1)), ((2, 2), (1, 1)), ((1, 0), (1, 1)), ((4, 3), (1, 1))),
        *(((0, 0), (2, 2)), ((1, 1), (2, 2)), ((2, 2), (2, 2)), ((1, 2), (3, 2)), ((1, 1), (1, 2))),
    ],
)
@pytest.mark.parametrize(
    ("sides", "kernel_sides"),
    [((8, 8), (3, 3)), ((9, 7), (3, 3)), ((5, 6), (1, 1)), ((7, 12), (2, 5)), ((3, 4), (3, 1))],
)
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 3), (8, 8), (19, 11), (3, 40)])
@pytest.mark.parametrize("batch", [1, 2, 3, 10])
def test_convolutions_are_torchs(sides, kernel_sides, inputs, outputs, padding, stride, batch):
    shape = PaddedShape(2, batch, *sides, inputs, *kernel_sides, outputs, *padding, *stride)
    if min(shape.made) < 1:
        pytest.skip("no position")
    x = random_leaf(2, inputs, *sides, batch, seed=1)
    w, b = random_leaf(2, outputs, inputs, *kernel_sides, seed=2), random_leaf(2, outputs, seed=3)
    same(PaddedConv.apply(x, w, b, shape), convolved(x, w, b, shape), [x, w, b], atol=1e-11)


@needs_kernel
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("batch", [4, 5, 8, 10, 33])
def test_convolutions_in_single_precision_are_exact_to_rounding(stride, batch):
    shape = PaddedShape(1, batch, 32, 32, 16, 3, 3, 24, 1, 1, stride, stride)
    x, w = (
        random_leaf(1, 16, 32, 32, batch, seed=1, dtype=torch.float32),
        random_leaf(1, 24, 16, 3, 3, seed=2, dtype=torch.float32),
    )
    exact = [leaf.detach().double().requires_grad_() for leaf in (x, w)]
    made, wanted = PaddedConv.apply(x, w, None, shape), convolved(*exact, None, shape)
    found = [made, *torch.autograd.grad(made.sum(), [x, w])]
    for mine, its in zip(found, [wanted, *torch.autograd.grad(wanted.sum(), exact)], strict=True):
        assert (mine - its).abs().max() < 5e-6 * its.abs().max()


@needs_kernel
def test_a_convolution_of_data_without_a_bias():
    shape = PaddedShape(2, 3, 6, 6, 9, 3, 3, 8, 1, 1, 1, 1)
    x, w = random_leaf(2, 9, 6, 6, 3, seed=1).detach(), random_leaf(2, 8, 9, 3, 3, seed=2)
    same(PaddedConv.apply(x, w, None, shape), convolved(x, w, None, shape), [w], atol=1e-12)


@needs_kernel
@pytest.mark.parametrize("stride", [1, 2])
def test_what_one_image_or_client_has_is_not_anothers(stride):
    shape = PaddedShape(2, 5, 7, 7, 8, 3, 3, 8, 1, 1, stride, stride)
    x, w = random_leaf(2, 8, 7, 7, 5, seed=1), random_leaf(2, 8, 8, 3, 3, seed=2)
    with torch.no_grad():
        x[0, :, :, :, 2] = float("nan")
    made = PaddedConv.apply(x, w, None, shape)
    assert made[0, ..., 2].isnan().any()
    assert made[0, ..., [0, 1, 3, 4]].isfinite().all()
    assert made[1].isfinite().all()
    of_x, of_w = torch.autograd.grad(made.nansum(), [x, w])
    assert of_x[1].isfinite().all()
    assert of_w[1].isfinite().all()


@needs_kernel
def test_images_that_leave_no_position_are_refused():
    shape = PaddedShape(1, 1, 2, 2, 1, 5, 5, 1, 1, 1, 1, 1)
    with pytest.raises(RuntimeError, match="there is no convolution kernel"):
        PaddedConv.apply(torch.zeros(1, 1, 2, 2, 1), torch.zeros(1, 1, 1, 5, 5), None, shape)


def normed(x, scale, shift, added, shape: NormShape) -> torch.Tensor:
    """The same by torch."""
    clients = range(len(x))
    made = torch.stack(
        [
            functional.group_norm(
                x[c].permute(3, 0, 1, 2),
                shape.groups,
                None if scale is None else scale[c],
                None if shift is None else shift[c],
                shape.eps,
            ).permute(1, 2, 3, 0)
            for c in clients
        ]
    )
    made = made if added is None else made + added
    return made.relu() if shape.relu else made


@needs_kernel
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize(("channels", "groups"), [(4, 2), (6, 6), (9, 1)])
@pytest.mark.parametrize("sides", [(1, 1), (3, 5), (8, 8)])
@pytest.mark.parametrize("batch", [1, 2, 7, 10])
def test_group_norms_are_torchs(channels, groups, sides, batch, affine, adds, relu):
    if channels // groups * sides[0] * sides[1] == 1:
        pytest.skip("torch refuses groups of one number")
    shape = NormShape(groups, 1e-5, relu)
    x, added = (random_leaf(3, channels, *sides, batch, seed=seed) for seed in (1, 2))
    scale, shift = (random_leaf(3, channels, seed=seed) for seed in (3, 4))
    given = (x, scale if affine else None, shift if affine else None, added if adds else None)
    leaves = [leaf for leaf in given if leaf is not None]
    same(DirectNorm.apply(*given, shape), normed(*given, shape), leaves, atol=1e-9)


@needs_kernel
def test_a_large_mean_takes_no_digits_from_the_variance():
    x = random_leaf(1, 4, 8, 8, 10, seed=1, dtype=torch.float32).detach() + 1000.0
    shape = NormShape(2, 1e-5, relu=False)
    exact = normed(x.double(), None, None, None, shape)
    assert (DirectNorm.apply(x, None, None, None, shape) - exact).abs().max() < 1e-3


def examples(shape: tuple[int, int, int] = (3, 16, 16), samples: int = 44) -> Examples:
    rng = np.random.default_rng(0)
    inputs, labels = rng.integers(0, 256, (samples, *shape), dtype=np.uint8), rng.integers(0, 10, samples)
    return Examples(inputs, labels, inputs[:10], labels[:10], classes=10)


class Layers(Net):
    """A net of the layers it is given."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        object.__setattr__(self, "_layers", layers)

    def module(self, input_shape, classes):
        return nn.Sequential(*self._layers)


def trained(
    net: Net, *, training: Training | None = None, **acceleration
) -> tuple[CohortTrainer, torch.Tensor]:
    """Train four clients with unequal numbers of samples; return the trainer and their updates."""
    made = CohortTrainer(
        net,
        examples(),
        tuple(np.split(np.arange(44), [13, 26, 30])),
        training or Training(local_epochs=1, batch_size=5),
        Acceleration(device="cpu", **{"precision": "float64", **acceleration}),
        seed=1,
    )
    chunks = list(made.train(made.initial(), np.arange(4), 0))
    order = np.argsort(np.concatenate([chunk.clients for chunk in chunks]))
    return made, torch.cat([torch.cat([chunk.updates, chunk.losses[:, None]], 1) for chunk in chunks])[order]


def whole(module: nn.Module, shape: tuple[int, int, int] = (3, 16, 16)) -> ImageNet | None:
    """The net that the kernel does in one call."""
    data = examples(shape)
    samples = Samples(
        data.train_inputs, data.train_labels, accelerator=torch.device("cpu"), dtype=torch.float64
    )
    net = stack_of(module, direct=True)
    assert net is not None
    return ImageNet.of(net, samples, len(list(module.parameters())))


@needs_kernel
@pytest.mark.parametrize(
    "training",
    [
        Training(local_epochs=1, batch_size=5),
        Training(local_epochs=2, batch_size=3, momentum=0.9, weight_decay=0.01),
        Training(local_epochs=1, batch_size=4, proximal_mu=0.1, clip_norm=0.5),
    ],
)
@pytest.mark.parametrize("stack_size", [1, 4])
def test_a_resnet_learns_what_it_learns_in_the_loop(training, stack_size):
    net = ResNet(width=8)
    ours, updates = trained(net, training=training, stack_size=stack_size)
    _, expected = trained(net, training=training, path="loop")
    assert ours.plan.direct
    assert ours.plan.path == "stacked"
    torch.testing.assert_close(updates, expected, rtol=0, atol=1e-9)


def mixed_nets() -> dict[str, tuple[list[nn.Module], bool]]:
    """Nets, and whether the kernel does all of each in one call."""
    torch.manual_seed(0)
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return {
        "relu and no norm": ([nn.Conv2d(3, 9, 3, padding=1), nn.ReLU(), *head, nn.Linear(9, 10)], True),
        "two linear layers": (
            [
                nn.Conv2d(3, 8, 5, padding=2, stride=2, bias=False),
                *head,
                nn.Linear(8, 12, bias=False),
                nn.ReLU(),
                nn.Linear(12, 10),
            ],
            True,
        ),
        "norm without parameters": (
            [
                nn.Conv2d(3, 8, 3, padding=1),
                nn.GroupNorm(2, 8, affine=False),
                nn.ReLU(),
                Residual(nn.Conv2d(8, 8, 1), nn.GroupNorm(4, 8)),
                nn.Conv2d(8, 10, 3),
                *head,
                nn.Linear(10, 10),
            ],
            True,
        ),
        "residual of data": (
            [Residual(nn.Conv2d(3, 3, 3, padding=1), nn.GroupNorm(1, 3)), nn.ReLU(), *head, nn.Linear(3, 10)],
            True,
        ),
        "residual inside a residual": (
            [
                nn.Conv2d(3, 8, 3, padding=1),
                Residual(
                    Residual(nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8)),
                    nn.Conv2d(8, 8, 3, padding=1),
                    nn.GroupNorm(2, 8),
                ),
                nn.ReLU(),
                *head,
                nn.Linear(8, 10),
            ],
            False,
        ),
        "residual without a norm at its end": (
            [
                nn.Conv2d(3, 8, 3, padding=1),
                Residual(nn.GroupNorm(2, 8), nn.Conv2d(8, 8, 3, padding=1)),
                *head,
                nn.Linear(8, 10),
            ],
            False,
        ),
        "pooling": (
            [
                nn.Conv2d(3, 8, 3, padding=1),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(8, 8, 3, padding=1),
                nn.AvgPool2d(2),
                nn.Tanh(),
                nn.Flatten(),
                nn.Linear(128, 10),
            ],
            False,
        ),
        "dropout": (
            [nn.Conv2d(3, 8, 3, padding=1), nn.Dropout2d(0.5), *head, nn.Dropout(0.3), nn.Linear(8, 10)],
            False,
        ),
        "no flattening": (
            [nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(2048, 10)],
            False,
        ),
    }


@needs_kernel
@pytest.mark.parametrize("name", list(mixed_nets()))
def test_nets_of_other_layers_too(name):
    layers, in_one_call = mixed_nets()[name]
    ours, updates = trained(Layers(*layers))
    _, expected = trained(Layers(*layers), path="loop")
    assert ours.plan.direct
    torch.testing.assert_close(updates, expected, rtol=0, atol=1e-9)
    if "dropout" not in name:
        assert (whole(nn.Sequential(*layers).double()) is not None) == in_one_call


@needs_kernel
def test_in_single_precision_the_first_step_is_the_same_but_for_rounding():
    training = Training(local_epochs=1, batch_size=13, learning_rate=1e-3)
    _, updates = trained(ResNet(width=8), training=training, precision="float32")
    _, expected = trained(ResNet(width=8), training=training)
    # Where ReLU gets a number near zero, rounding decides whether a gradient passes.
    assert (updates - expected).abs().max() < 1e-3 * expected[:, :-1].abs().max()


@needs_kernel
def test_the_same_numbers_every_time():
    first, again = (trained(ResNet(width=8), precision="float32")[1] for _ in range(2))
    assert torch.equal(first, again)


@needs_kernel
def test_labels_that_no_class_has_are_left_to_torch():
    module = ResNet(width=8).build((3, 16, 16), 5, seed=0).double()
    assert whole(module) is None


@needs_kernel
def test_a_convolution_in_groups_leaves_all_to_torch():
    assert kernels_of(DepthwiseCnn().build((3, 16, 16), 10, seed=0)) == []
    assert kernels_of(ResNet().build((3, 16, 16), 10, seed=0)) == [direct_conv.kernel, image_kernel.kernel]


def test_without_a_compiler_torch_does_it(monkeypatch):
    for each in (direct_conv.kernel, image_kernel.kernel):
        each.cache_clear()
    monkeypatch.setattr(c_kernel, "_compiler", lambda: None)
    try:
        made, updates = trained(ResNet(width=8))
        assert not made.plan.direct
        assert updates.isfinite().all()
    finally:
        for each in (direct_conv.kernel, image_kernel.kernel):
            each.cache_clear()


@needs_kernel
def test_a_header_that_changed_is_another_kernel(monkeypatch, tmp_path):
    source = tmp_path / "one.c"
    source.write_text('#include "one.h"\nint number(void) { return NUMBER; }\n')
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(c_kernel, "_prove", lambda library, dtype, prover: None)
    found = []
    for number in (1, 2):
        (tmp_path / "one.h").write_text(f"#define NUMBER {number}\n")
        library = c_kernel.load(source, torch.float32, prover="", purpose="tests")
        assert library is not None
        found.append(library.number())
    assert found == [1, 2]


def test_a_padded_shape_knows_what_comes_out():
    shape = PaddedShape(2, 3, 9, 8, 4, 3, 3, 5, 1, 1, 2, 2)
    assert shape.made == (2, 5, 5, 4, 3)
    assert replace(shape, stride_down=1, stride_across=1).made == (2, 5, 9, 8, 3)
