"""Nets: what they cost, how they begin, and a user's own."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fdsim.catalogue import MENU, NestedError, build
from fdsim.errors import ScenarioError
from fdsim.learning.nets.cost import measured_cost, refuse_misfit
from fdsim.learning.nets.library import CifarCnn, Mlp

SHAPES = {"mlp": (1, 8, 8), "mnist_cnn": (1, 28, 28)}
NETS = [build("net", kind) for kind in MENU["net"] if kind != "module"]
NETS += [build("net", {"kind": kind, "dropout": 0.3}) for kind in ("depthwise_cnn", "mnist_cnn")]
NETS += [Mlp(hidden=())]


@pytest.mark.parametrize("net", NETS, ids=lambda net: net.kind)
def test_the_formula_is_what_torch_counts(net):
    shape = SHAPES.get(net.kind, (3, 32, 32))
    assert net.cost(shape, 7) == measured_cost(net.build(shape, 7, seed=0), shape)


def test_the_papers_nets_have_the_papers_sizes():
    assert build("net", "cifar_cnn").cost((3, 32, 32), 10).parameters == 62_006
    assert build("net", "mnist_cnn").cost((1, 28, 28), 10).parameters == 21_840
    assert build("net", "pfl_cnn").cost((3, 32, 32), 10).parameters == 1_626_442


def test_parameters_belong_to_the_seed_and_nobody_notices():
    before = torch.random.get_rng_state()
    first, again, other = (Mlp().build((4,), 3, seed=seed) for seed in (1, 1, 2))
    assert torch.random.get_rng_state().equal(before)
    assert all(a.equal(b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not all(a.equal(b) for a, b in zip(first.parameters(), other.parameters(), strict=True))


def test_images_that_are_too_small_are_refused():
    with pytest.raises(ScenarioError, match="at least 16×16"):
        CifarCnn().cost((1, 8, 8), 10)


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    (tmp_path / "own_nets_for_test.py").write_text(
        "from torch import nn\n"
        "class Tiny(nn.Sequential):\n"
        "    def __init__(self, input_shape, classes, width=3):\n"
        "        side = input_shape[1]\n"
        "        super().__init__(nn.Conv2d(1, width, 3), nn.Flatten(), nn.Linear(width * (side - 2) ** 2, classes))\n"
        "class NotANet: pass\n"
    )
    monkeypatch.chdir(tmp_path)
    return "own_nets_for_test"


def test_a_users_own_module(own_module):
    net = build("net", {"kind": "module", "path": f"{own_module}:Tiny", "arguments": {"width": 2}})
    cost = net.cost((1, 6, 6), 4)
    assert cost.parameters == 2 * 9 + 2 + 2 * 16 * 4 + 4
    assert cost.forward_flops == 2 * (16 * 2 * 9 + 32 * 4)
    assert type(net).model_validate(net.model_dump()) == net


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("{0}:Tinny", "did you mean 'Tiny'"),
        ("{0}:NotANet", "not an nn.Module"),
        ("no_such_module_x:Net", "no module called"),
        ("{0}", "module:Class"),
    ],
)
def test_a_wrong_path_is_refused(own_module, path, says):
    with pytest.raises(NestedError, match=says):
        build("net", {"kind": "module", "path": path.format(own_module)})


def test_missing_arguments_are_named(own_module):
    net = build("net", {"kind": "module", "path": f"{own_module}:Tiny", "arguments": {"depth": 2}})
    with pytest.raises(ScenarioError, match="depth"):
        net.build((1, 6, 6), 4, seed=0)


@pytest.mark.parametrize(
    ("layer", "word"),
    [
        (nn.Linear(7, 4), r"'mine:Net' does not take inputs of shape \(2,\)"),
        (nn.Linear(2, 3), "gives 3 outputs, the data have 4 classes"),
        (nn.Unflatten(1, (2, 1)), r"a tensor of shape \(1, 2, 1\)"),
    ],
)
def test_a_net_that_does_not_fit_the_data_is_refused(layer: nn.Module, word: str) -> None:
    with pytest.raises(ScenarioError, match=word):
        refuse_misfit(layer, (2,), 4, name="mine:Net")


def test_more_outputs_than_classes_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        refuse_misfit(nn.Linear(2, 5), (2,), 4, name="mine:Wide")
    assert [r.getMessage() for r in caplog.records] == [
        "net: 'mine:Wide' gives 5 outputs, the data have 4 classes"
    ]
