"""Convolutions of small nets on a CPU by our own C kernel, which is compiled at first use.

Where there is no compiler, or it fails, `kernel` returns None and torch's own convolutions are used: the same
numbers up to rounding, more slowly.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import math
import os
import platform
import shutil
import subprocess
import tempfile
from dataclasses import astuple, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

log = logging.getLogger("fdsim.learning")

#: Output channels are padded to a multiple of this; see direct_conv.c.
LANES = 8
#: Beyond this many channels torch's convolutions are as fast.
MOST_CHANNELS = 4 * LANES

_SOURCE = Path(__file__).with_name("direct_conv.c")
_FLAGS = ("-O3", "-march=native", "-shared", "-fPIC")
_NUMBERS = {torch.float32: (), torch.float64: ("-DT=double", "-DWHOLE=int64_t")}


@dataclass(frozen=True)
class ConvShape:
    """One convolution of a stack: C clients, B images each of H × W × inputs, and what follows it."""

    clients: int
    batch: int
    height: int
    width: int
    inputs: int
    rows: int
    columns: int
    outputs: int
    pool: bool
    relu: bool

    @property
    def sums(self) -> tuple[int, int]:
        """Height and width before pooling."""
        return self.height - self.rows + 1, self.width - self.columns + 1

    @property
    def made(self) -> tuple[int, int, int, int, int]:
        """The shape of what comes out, [C, B, height, width, outputs]."""
        high, wide = (side // 2 if self.pool else side for side in self.sums)
        return self.clients, self.batch, high, wide, self.outputs


def padded(channels: int) -> int:
    """Return a number of channels rounded up to whole vectors."""
    return -(-channels // LANES) * LANES


@cache
def kernel(dtype: torch.dtype = torch.float32) -> ctypes.CDLL | None:
    """Return the kernel for a type of numbers, or None where it cannot be compiled.

    It is compiled in a few seconds, once for each machine.
    """
    compiler = os.environ.get("CC") or next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        log.info("no C compiler: convolutions are torch's own")
        return None
    try:
        return ctypes.CDLL(str(_built(compiler, (*_FLAGS, *_NUMBERS[dtype]))))
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("the convolution kernel could not be compiled, torch's own are used: %s", error)
        return None


def _built(compiler: str, flags: tuple[str, ...]) -> Path:
    """Compile the kernel unless it exists for the same source, compiler and processor."""
    told = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    key = hashlib.sha256(
        "\n".join([_SOURCE.read_text("utf-8"), told, *flags, platform.machine(), _processor()]).encode()
    ).hexdigest()[:16]
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fdsim"
    library = home / f"direct_conv-{key}.so"
    if library.exists():
        return library
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError:
        home = Path(tempfile.mkdtemp(prefix="fdsim-"))
        library = home / library.name
    with tempfile.TemporaryDirectory(dir=home) as scratch:
        fresh = Path(scratch) / library.name
        subprocess.run(
            [compiler, *flags, str(_SOURCE), "-o", str(fresh)], check=True, capture_output=True, timeout=120
        )
        fresh.replace(library)
    return library


def _processor() -> str:
    """Name the processor: the kernel is compiled for exactly this one."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))


class DirectConv(torch.autograd.Function):
    """Convolution, bias, 2×2 max-pooling and ReLU of a stack, as far as the shape asks for them.

    Inputs [C, B, H, W, inputs], weights [C, rows, columns × inputs, padded outputs] and bias [C, padded outputs] give
    [C, B, height, width, outputs]. All contiguous. Weights of padding are zero, and so are their gradients.
    """

    @staticmethod
    def forward(
        ctx: Any, inputs: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor, shape: ConvShape
    ) -> torch.Tensor:
        """Call the kernel."""
        # The kernel writes whole vectors, the last of which may reach beyond the end.
        count = math.prod(shape.made)
        made = inputs.new_empty(count + LANES)[:count].view(shape.made)
        chosen = torch.empty(count + LANES, dtype=torch.uint8)[:count]
        high, wide = shape.sums
        sums = inputs.new_empty(high * wide * padded(shape.outputs))
        _call("forward", inputs.dtype, shape, inputs, weights, bias, made, chosen, sums)
        ctx.shape = shape
        ctx.save_for_backward(inputs, weights, chosen)
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Call the kernel's backward pass."""
        inputs, weights, chosen = ctx.saved_tensors
        shape: ConvShape = ctx.shape
        found = gradients[0].contiguous()
        high, wide = shape.sums
        margins = inputs.new_zeros(
            (high + 2 * (shape.rows - 1)) * (wide + 2 * (shape.columns - 1)) * padded(shape.outputs)
        )
        of_weights, of_bias = (
            torch.zeros_like(weights),
            weights.new_zeros(shape.clients, padded(shape.outputs)),
        )
        of_inputs = turned = scratch = None
        if ctx.needs_input_grad[0]:
            of_inputs, turned = torch.empty_like(inputs), _turned(weights, shape)
            scratch = inputs.new_empty(shape.height * shape.width * padded(shape.inputs))
        _call(
            "backward",
            inputs.dtype,
            shape,
            *(inputs, found, chosen, turned, of_weights, of_bias, of_inputs, margins, scratch),
        )
        return of_inputs, of_weights, of_bias, None


def _turned(weights: torch.Tensor, shape: ConvShape) -> torch.Tensor:
    """The weights with inputs and outputs exchanged and both kernel axes reversed, inputs padded to whole vectors."""
    split = weights.view(shape.clients, shape.rows, shape.columns, shape.inputs, padded(shape.outputs)).flip(
        1, 2
    )
    turned = weights.new_zeros(
        shape.clients, shape.rows, shape.columns, padded(shape.outputs), padded(shape.inputs)
    )
    turned[..., : shape.inputs] = split.transpose(3, 4)
    return turned


def _call(name: str, dtype: torch.dtype, shape: ConvShape, *tensors: torch.Tensor | None) -> None:
    library = kernel(dtype)
    if library is None or max(shape.inputs, shape.outputs) > MOST_CHANNELS or min(shape.made) < 1:
        raise RuntimeError(f"there is no convolution kernel for {shape} in {dtype}")
    numbers = (ctypes.c_int64 * 10)(*astuple(shape))
    # ctypes releases the interpreter lock while the kernel runs, so that workers run in parallel.
    library[name](
        ctypes.byref(numbers), *(ctypes.c_void_p(None if t is None else t.data_ptr()) for t in tensors)
    )
