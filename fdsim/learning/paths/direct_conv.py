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
import shlex
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import astuple, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from fdsim.files import UnfinishedFile

log = logging.getLogger("fdsim.learning")

#: Output channels are padded to a multiple of this; see direct_conv.c.
LANES = 8
#: Beyond this many channels torch's convolutions are as fast.
MOST_CHANNELS = 4 * LANES

_SOURCE = Path(__file__).with_name("direct_conv.c")
_FLAGS = ("-O3", "-march=native", "-shared", "-fPIC")
#: How long a compiler may take to say its version, and to compile, s.
_VERSION_S, _COMPILE_S = 10.0, 120.0
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
    """Return the kernel for a type of numbers, or None where it cannot be compiled or does not work.

    It is compiled in a few seconds, once for each machine.
    """
    compiler = _compiler()
    if compiler is None:
        log.info("no C compiler: convolutions are torch's own")
        return None
    try:
        return _loaded(compiler, dtype)
    except (OSError, subprocess.SubprocessError) as error:
        log.warning(
            "the convolution kernel could not be compiled, torch's own are used: %s%s", error, _told(error)
        )
        return None


def _compiler() -> list[str] | None:
    """Return the words of the compiler's command; $CC may hold options too, as in "gcc -m64"."""
    chosen = shlex.split(os.environ.get("CC", ""))
    if chosen:
        return chosen
    found = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    return None if found is None else [found]


def _told(error: Exception) -> str:
    """Return the last line that a failed program wrote."""
    lines = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip().splitlines()
    return f" ({lines[-1]})" if lines else ""


def _loaded(compiler: list[str], dtype: torch.dtype) -> ctypes.CDLL:
    """Load the kernel from the cache, or compile, prove, load and keep it."""
    flags = (*_FLAGS, *_NUMBERS[dtype])
    version = subprocess.run([*compiler, "--version"], capture_output=True, check=True, timeout=_VERSION_S)
    about = [_SOURCE.read_bytes(), version.stdout, *(word.encode() for word in (*compiler, *flags))]
    about += [platform.machine().encode(), _processor().encode()]
    name = "direct_conv-" + hashlib.sha256(b"\n".join(about)).hexdigest()[:16]
    cache_folder = _cache_folder()
    kept = None if cache_folder is None else _kept(cache_folder, name)
    if kept is not None:
        return ctypes.CDLL(str(kept))
    # What is loaded stays in memory when its file is removed, so that nothing is left where no cache can be written.
    with tempfile.TemporaryDirectory(prefix="fdsim-", ignore_cleanup_errors=True) as scratch:
        fresh = Path(scratch) / f"{name}.so"
        command = [*compiler, *flags, str(_SOURCE), "-o", str(fresh)]
        subprocess.run(command, check=True, capture_output=True, timeout=_COMPILE_S)
        _prove(fresh, dtype)
        library = ctypes.CDLL(str(fresh))
        if cache_folder is not None:
            with suppress(OSError), UnfinishedFile(cache_folder / f"{name}-{_sum(fresh)}.so") as waiting:
                shutil.copyfile(fresh, waiting)
    return library


def _cache_folder() -> Path | None:
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fdsim"
    except RuntimeError:  # nobody's home
        return None


def _kept(folder: Path, name: str) -> Path | None:
    """Return the library in the cache whose bytes have the checksum in its name; damaged ones are removed."""
    for path in sorted(folder.glob(f"{name}-*.so")):
        with suppress(OSError):
            if path.stem == f"{name}-{_sum(path)}":
                return path
            log.warning("%s is damaged, and compiled again", path)
            path.unlink()
    return None


def _sum(path: Path) -> str:
    """Return a checksum of a file. To load a damaged library would end the process, without a word."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]


def _prove(library: Path, dtype: torch.dtype) -> None:
    """Try a fresh kernel in a process of its own: an instruction that this processor lacks ends that one, not ours."""
    here = str(Path(__file__).resolve().parents[3])
    code = f"from {__name__} import prove; prove({str(library)!r}, {str(dtype).removeprefix('torch.')!r})"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*filter(None, sys.path), here])}
    subprocess.run(
        [sys.executable, "-P", "-c", code],
        check=True,
        capture_output=True,
        timeout=_COMPILE_S,
        env=environment,
    )


def prove(library: str, number: str) -> None:
    """Hold one convolution and its gradients by a library against torch's own; raise if they differ."""
    loaded, dtype = ctypes.CDLL(library), getattr(torch, number)
    globals()["kernel"] = lambda _: loaded  # this process is for nothing else
    shape = ConvShape(2, 3, 9, 10, 2, 3, 3, LANES, pool=True, relu=True)
    inputs = (
        torch.linspace(-1, 2, 2 * 3 * 9 * 10 * 2, dtype=dtype).sin().view(2, 3, 9, 10, 2).requires_grad_()
    )
    # One value for all weights: what is proven is that the code runs, tests hold it against torch in every layout.
    weights = torch.full((2, 3, 3 * 2, LANES), 0.25, dtype=dtype, requires_grad=True)
    bias = torch.full((2, LANES), 0.125, dtype=dtype, requires_grad=True)
    made: torch.Tensor = DirectConv.apply(inputs, weights, bias, shape)
    found = torch.autograd.grad(made.sum(), (inputs, bias))
    plain = torch.full((LANES, 2, 3, 3), 0.25, dtype=dtype)
    images = inputs.view(6, 9, 10, 2).permute(0, 3, 1, 2)
    sums = torch.nn.functional.conv2d(images, plain) + bias[0, 0]
    wanted = torch.nn.functional.max_pool2d(sums.relu(), 2)
    expected = torch.autograd.grad(wanted.sum(), inputs)[0]
    torch.testing.assert_close(made.view(6, *made.shape[2:]).permute(0, 3, 1, 2), wanted)
    torch.testing.assert_close(found[0], expected)


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
