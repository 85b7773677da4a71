"""The nets that clients train: the net family."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field, PositiveInt

from fdsim.catalogue import Component
from fdsim.errors import ScenarioError
from fdsim.learning.nets.layers import (
    Block,
    Conv,
    Drop,
    Flatten,
    GroupNorm,
    Layer,
    Linear,
    MaxPool,
    MeanPool,
    Relu,
    Shape,
    cost_of,
    sequence_of,
)
from fdsim.workload import NetCost

if TYPE_CHECKING:
    import torch


class Net(Component):
    """A classifier: what it costs, and the torch module it is."""

    family: ClassVar[str] = "net"

    def cost(self, input_shape: Shape, classes: int) -> NetCost:
        """Return operations per sample and parameters; unless overridden, measured on the module itself."""
        from fdsim.learning.nets.cost import measured_cost, refuse_misfit

        module = self.build(input_shape, classes, seed=0)
        refuse_misfit(module, input_shape, classes, name=getattr(self, "path", self.kind))
        return measured_cost(module, input_shape)

    def module(self, input_shape: Shape, classes: int) -> torch.nn.Module:
        """Make the torch module, initialised from torch's default generator (which `build` has seeded)."""
        raise NotImplementedError(f"{type(self).__name__} has no module")

    def build(self, input_shape: Shape, classes: int, seed: int) -> torch.nn.Module:
        """Make the torch module with parameters derived from the seed, on the CPU."""
        with seeded(seed):
            return self.module(input_shape, classes)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's default generator, which modules draw from, and restore it afterwards."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


class LayeredNet(Net):
    """A net that is a sequence of our own layer records, so its cost is known without torch."""

    def layers(self, input_shape: Shape, classes: int) -> list[Layer]:
        """Return the layers in order."""
        raise NotImplementedError(f"{type(self).__name__} has no layers")

    def cost(self, input_shape: Shape, classes: int) -> NetCost:
        return cost_of(self.layers(input_shape, classes), input_shape)

    def module(self, input_shape: Shape, classes: int) -> torch.nn.Module:
        return sequence_of(self.layers(input_shape, classes), input_shape)


def _require_image(net: Net, input_shape: Shape, smallest: int) -> None:
    if len(input_shape) != 3 or min(input_shape[1:]) < smallest:
        raise ScenarioError(
            "net",
            f"'{net.kind}' needs images of at least {smallest}×{smallest}, the data has {list(input_shape)}",
            "choose another net (mlp takes anything) or other data",
        )


class Mlp(LayeredNet):
    """Fully connected layers with ReLU between them; takes inputs of any shape."""

    hidden: tuple[PositiveInt, ...] = Field((64,), description="features of each hidden layer")

    def layers(self, input_shape: Shape, classes: int) -> list[Layer]:
        hidden: list[Layer] = [layer for size in self.hidden for layer in (Linear(size), Relu())]
        return [Flatten(), *hidden, Linear(classes)]


class MnistCnn(LayeredNet):
    """The paper's net for MNIST and FashionMNIST: two 5×5 convolutions, two fully connected layers."""

    hidden: PositiveInt = Field(50, description="features between the two fully connected layers")
    dropout: float = Field(
        0.0,
        ge=0.0,
        lt=1.0,
        description="fraction dropped of the second convolution's channels and of the hidden features",
    )

    def layers(self, input_shape: Shape, classes: int) -> list[Layer]:
        _require_image(self, input_shape, 16)
        channels: list[Layer] = [Drop(self.dropout, channels=True)] if self.dropout else []
        features: list[Layer] = [Drop(self.dropout)] if self.dropout else []
        return [
            *(Conv(10, 5), MaxPool(), Relu()),
            *(Conv(20, 5), MaxPool(), Relu(), *channels),
            *(Flatten(), Linear(self.hidden), Relu(), *features, Linear(classes)),
        ]


class CifarCnn(LayeredNet):
    """The paper's net for CIFAR-10, a LeNet: two 5×5 convolutions, three fully connected layers."""

    def layers(self, input_shape: Shape, classes: int) -> list[Layer]:
        _require_image(self, input_shape, 16)
        return [
            *(Conv(6, 5), Relu(), MaxPool()),
            *(Conv(16, 5), Relu(), MaxPool()),
            *(Flatten(), Linear(120), Relu(), Linear(84), Relu(), Linear(classes)),
        ]


class PflCnn(LayeredNet):
    """The 1.6-million-parameter net of pfl-research's CIFAR-10 benchmark: two 3×3 convolutions and a wide layer."""

    def layers(self, input_shape: Shape, classes: int) -> list[Layer]:
        _require_image(self, input_shape, 8)
        return [
            Conv(32, 3),
            Relu(),
            Conv(64, 3),
            Relu(),
            MaxPool(),
            Flatten(),
            Linear(128),
            Relu(),
            Linear(classes),
        ]


class DepthwiseCnn(LayeredNet):
    """A small MobileNet: depthwise 3×3 and pointwise 1×1 convolutions with group norm."""

    width: PositiveInt = Field(
        16, multiple_of=8, description="channels of the first block; later blocks double them"
    )
    dropout: float = Field(
        0.0, ge=0.0, lt=1.0, description="fraction of features dropped before the last layer"
    )

    def layers(self, input_shape: Shape, classes: int) -> list[Layer]:
        _require_image(self, input_shape, 8)
        layers: list[Layer] = [Conv(self.width, 3, padding=1), GroupNorm(4), Relu()]
        channels = self.width
        for _ in range(2):
            layers += [Conv(channels, 3, padding=1, groups=channels), GroupNorm(4), Relu()]
            layers += [Conv(2 * channels, 1), GroupNorm(4), Relu(), MaxPool()]
            channels *= 2
        drop: list[Layer] = [Drop(self.dropout)] if self.dropout else []
        return [*layers, MeanPool(), Flatten(), *drop, Linear(classes)]


class ResNet(LayeredNet):
    """A small residual net with group norm in place of batch norm, as federated learning prefers."""

    width: PositiveInt = Field(
        16, multiple_of=8, description="channels of the first stage; later stages double them"
    )
    stages: PositiveInt = Field(3, description="stages, each of half the resolution of the one before")

    def layers(self, input_shape: Shape, classes: int) -> list[Layer]:
        _require_image(self, input_shape, 2 ** (self.stages + 1))
        layers: list[Layer] = []
        for stage in range(self.stages):
            channels = self.width * 2**stage
            body = (
                *(Conv(channels, 3, padding=1), GroupNorm(4), Relu()),
                *(Conv(channels, 3, padding=1), GroupNorm(4)),
            )
            stem = Conv(channels, 3, padding=1, stride=1 if stage == 0 else 2)
            layers += [stem, GroupNorm(4), Relu(), Block(body), Relu()]
        return [*layers, MeanPool(), Flatten(), Linear(classes)]
