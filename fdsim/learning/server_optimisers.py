"""What the server does with the blended update: the optimiser family.

An update points downhill already, so w ← w + η·(a function of the update). State goes in and comes out, and holds
only tensors and numbers, so that it can be checkpointed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field, NonNegativeFloat, PositiveFloat

from fdsim.catalogue import Component

if TYPE_CHECKING:
    import torch

State = dict[str, Any]


class ServerOptimiser(Component):
    """A rule that turns the global model and a blended update into the next global model."""

    family: ClassVar[str] = "optimiser"

    def start(self, parameters: int, accelerator: torch.device, dtype: torch.dtype) -> State:
        """Make the state before round 0."""
        return {}

    def step(
        self, params: torch.Tensor, update: torch.Tensor, state: State, learning_rate: float
    ) -> tuple[torch.Tensor, State]:
        """Return the next parameters [P] and state; neither argument is changed."""
        raise NotImplementedError(f"{type(self).__name__} has no step")


class Plain(ServerOptimiser):
    """w ← w + η·update, as in FedAvg."""

    def step(
        self, params: torch.Tensor, update: torch.Tensor, state: State, learning_rate: float
    ) -> tuple[torch.Tensor, State]:
        return params + learning_rate * update, state


class Momentum(ServerOptimiser):
    """Heavy-ball momentum on the server (FedAvgM): v ← β·v + update, w ← w + η·v."""

    momentum: NonNegativeFloat = Field(0.9, lt=1.0, description="part of the last step that is kept")

    def start(self, parameters: int, accelerator: torch.device, dtype: torch.dtype) -> State:
        import torch

        return {"velocity": torch.zeros(parameters, device=accelerator, dtype=dtype)}

    def step(
        self, params: torch.Tensor, update: torch.Tensor, state: State, learning_rate: float
    ) -> tuple[torch.Tensor, State]:
        velocity = self.momentum * state["velocity"] + update
        return params + learning_rate * velocity, {"velocity": velocity}


class Adaptive(ServerOptimiser):
    """What FedAdam, FedYogi and FedAdagrad share (Reddi et al. 2021): no bias correction, τ added to the root."""

    beta1: NonNegativeFloat = Field(0.9, lt=1.0, description="decay of the mean update")
    tau: PositiveFloat = Field(1e-3, description="added to the root of the second moment")

    def second(self, squared: torch.Tensor, moment: torch.Tensor) -> torch.Tensor:
        """Return the next second moment [P]."""
        raise NotImplementedError(f"{type(self).__name__} has no second moment")

    def start(self, parameters: int, accelerator: torch.device, dtype: torch.dtype) -> State:
        import torch

        mean = torch.zeros(parameters, device=accelerator, dtype=dtype)
        return {"mean": mean, "moment": torch.full_like(mean, self.tau**2)}

    def step(
        self, params: torch.Tensor, update: torch.Tensor, state: State, learning_rate: float
    ) -> tuple[torch.Tensor, State]:
        mean = self.beta1 * state["mean"] + (1.0 - self.beta1) * update
        moment = self.second(update * update, state["moment"])
        return params + learning_rate * mean / (moment.sqrt() + self.tau), {"mean": mean, "moment": moment}


class FedAdam(Adaptive):
    """Adam on the server: the second moment is a running mean."""

    beta2: NonNegativeFloat = Field(0.99, lt=1.0, description="decay of the second moment")

    def second(self, squared: torch.Tensor, moment: torch.Tensor) -> torch.Tensor:
        return self.beta2 * moment + (1.0 - self.beta2) * squared


class FedYogi(Adaptive):
    """Yogi on the server: the second moment moves by at most (1 − β₂)·update²."""

    beta2: NonNegativeFloat = Field(0.99, lt=1.0, description="decay of the second moment")

    def second(self, squared: torch.Tensor, moment: torch.Tensor) -> torch.Tensor:
        return moment - (1.0 - self.beta2) * squared * (moment - squared).sign()


class FedAdagrad(Adaptive):
    """Adagrad on the server: the second moment only grows."""

    beta1: NonNegativeFloat = Field(0.0, lt=1.0, description="decay of the mean update")

    def second(self, squared: torch.Tensor, moment: torch.Tensor) -> torch.Tensor:
        return moment + squared
