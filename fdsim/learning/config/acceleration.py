"""The `[acceleration]` table: on what, and how, clients are trained. It never changes what they learn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, PositiveInt, field_validator

from fdsim.catalogue import Table
from fdsim.errors import ScenarioError

if TYPE_CHECKING:
    import torch


class Acceleration(Table):
    """Which accelerator trains, on which path, in what precision."""

    device: str | tuple[str, ...] = Field(
        "auto", description="auto, cpu, cuda, cuda:N, mps, or a list of several GPUs"
    )
    path: Literal["auto", "loop", "vmap", "stacked"] = Field(
        "auto",
        description="loop: one client after another; vmap: any module, mapped over clients; "
        "stacked: nets of supported layers, clients as one net",
    )
    stack_size: Literal["auto"] | PositiveInt = Field("auto", description="clients trained at once")
    compile: Literal["auto"] | bool = Field(False, description="torch.compile: a slower start, faster rounds")
    convolutions: Literal["auto", "torch"] = Field(
        "auto",
        description="auto: a C kernel, compiled at first use, where it is faster (few channels, stacked, on a CPU); "
        "torch: always torch's own. It also decides who multiplies updates when friends are looked for",
    )
    precision: Literal["float32", "tf32", "float64", "bf16", "fp16"] = Field(
        "float32",
        description="tf32: float32 whose products CUDA rounds to TF32; bf16 and fp16: mixed precision, with parameters "
        "in float32",
    )
    deterministic: bool = Field(
        True,
        description="on CUDA: deterministic cuDNN algorithms; false: the fastest of those tried at the start, "
        "which may change the last bits from run to run",
    )

    @field_validator("device")
    @classmethod
    def _known_device(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        for name in (value,) if isinstance(value, str) else value:
            kind, _, number = name.partition(":")
            if kind not in ("auto", "cpu", "cuda", "mps", "meta") or (number and not number.isdigit()):
                raise ValueError(f"no accelerator called '{name}'; there are auto, cpu, cuda, cuda:N and mps")
        return value

    def accelerators(self) -> tuple[torch.device, ...]:
        """Return the devices to train on; the first also holds the global model."""
        import torch

        names = (self.device,) if isinstance(self.device, str) else self.device
        found = tuple(_best() if name == "auto" else torch.device(name) for name in names)
        for device in found:
            if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
                raise ScenarioError(
                    "acceleration.device",
                    f"'{device}' is not available: torch {torch.__version__} sees {torch.cuda.device_count()} CUDA devices",
                    'choose device = "auto" or "cpu", or install a CUDA build of torch',
                )
            if device.type == "mps" and not torch.backends.mps.is_available():
                raise ScenarioError(
                    "acceleration.device", "'mps' is not available", 'choose device = "auto" or "cpu"'
                )
        return found

    def set_up_cuda(self) -> None:
        """Tell torch which of CUDA's algorithms may be used; without effect where there is no CUDA.

        These switches belong to the process. torch lets convolutions use TF32 unless it is told otherwise.
        """
        from torch.backends import cuda, cudnn

        cudnn.deterministic, cudnn.benchmark = self.deterministic, not self.deterministic
        cudnn.allow_tf32 = cuda.matmul.allow_tf32 = self.precision == "tf32"

    @property
    def dtype(self) -> torch.dtype:
        """The type of parameters and updates."""
        import torch

        return torch.float64 if self.precision == "float64" else torch.float32

    @property
    def product_dtype(self) -> torch.dtype | None:
        """The type of products under mixed precision; None otherwise."""
        import torch

        return {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.precision)


def _best() -> torch.device:
    import torch

    if torch.cuda.is_available():
        return torch.device("cuda:0")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")
