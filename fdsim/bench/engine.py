"""The speed of the learning engine, against a plain PyTorch loop on the same machine in the same run."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from fdsim.data.datasets import Examples
from fdsim.learning.cohort.cohort import CohortTrainer
from fdsim.learning.config.acceleration import Acceleration
from fdsim.learning.config.training import Training
from fdsim.learning.local.batches import BatchStream
from fdsim.learning.local.samples import Samples
from fdsim.learning.local.sgd import SgdSettings
from fdsim.learning.nets.library import CifarCnn, DepthwiseCnn, Mlp, MnistCnn, Net, PflCnn, ResNet
from fdsim.learning.paths.direct_conv import vector_bits
from fdsim.learning.paths.execution import ExecutionOptions
from fdsim.learning.paths.loop import LoopTrainer
from fdsim.learning.torch_threads import torch_threads

#: Times within the first factor of the best are taken for nearly as good, those beyond the second for far worse.
_NEARLY, _FAR = 1.5, 4.0


@dataclass(frozen=True)
class EngineWorkload:
    """A round to time: the number of clients and samples, a net, and the local training."""

    name: str
    net: Net
    shape: tuple[int, int, int]
    clients: int
    samples: int
    training: Training
    bar: float
    """The minimum speed-up over the plain loop."""


WORKLOADS = (
    EngineWorkload("mnist", MnistCnn(), (1, 28, 28), 20, 160, Training(local_epochs=2, batch_size=5), 6.0),
    EngineWorkload("cifar10", CifarCnn(), (3, 32, 32), 20, 800, Training(local_epochs=2, batch_size=20), 4.0),
    EngineWorkload("pfl", PflCnn(), (3, 32, 32), 50, 50, Training(local_epochs=1, batch_size=10), 1.3),
    EngineWorkload("digits", Mlp(), (1, 8, 8), 20, 70, Training(local_epochs=2, batch_size=10), 0.95),
    EngineWorkload(
        "depthwise", DepthwiseCnn(), (3, 32, 32), 10, 40, Training(local_epochs=1, batch_size=10), 0.95
    ),
    EngineWorkload("resnet", ResNet(), (3, 32, 32), 10, 40, Training(local_epochs=1, batch_size=10), 1.3),
)


@dataclass(frozen=True)
class Timing:
    """The measurements of a workload."""

    workload: EngineWorkload
    plain_s: float
    """One round of the plain loop, at the better number of threads."""
    plain_threads: int
    """How many threads that was."""
    threads: tuple[int, ...]
    """Numbers of threads at which the plain loop was nearly as fast: what other simulators deserve to be tried at."""
    engine_s: float
    first_s: float
    """The engine's first round, including all one-time work."""
    gflops: float
    """Of the engine, by torch's own counter: products of forward and backward passes."""
    plan: str
    convolutions: str
    """Whose they are: torch's, or those of our own kernel where it supports them."""
    memory_mb: float | None = None
    """Peak of a process that trains one round; None: not measured."""

    @property
    def ratio(self) -> float:
        """The speed-up over the plain loop."""
        return self.plain_s / self.engine_s


def examples_for(workload: EngineWorkload, clients: int | None = None) -> Examples:
    """Make random grey levels; the content of the images does not affect the time."""
    rng = np.random.default_rng(0)
    count = (clients or workload.clients) * workload.samples
    inputs = rng.integers(0, 256, (count, *workload.shape), dtype=np.uint8)
    labels = rng.integers(0, 10, count)
    return Examples(inputs, labels, inputs[:100], labels[:100], classes=10)


def shards(examples: Examples, clients: int) -> tuple[np.ndarray, ...]:
    """Divide the samples into equal blocks."""
    return tuple(np.split(np.arange(len(examples.train_labels)), clients))


def engine_for(
    workload: EngineWorkload, acceleration: Acceleration, clients: int | None = None
) -> CohortTrainer:
    """Make the trainer that a run would make."""
    examples = examples_for(workload, clients)
    indices = shards(examples, clients or workload.clients)
    return CohortTrainer(workload.net, examples, indices, workload.training, acceleration, seed=0)


def best_s(work: Callable[[], object], repeats: int) -> float:
    """Return the shortest time of several repeats."""
    found = float("inf")
    for _ in range(repeats):
        began_s = time.perf_counter()
        work()
        found = min(found, time.perf_counter() - began_s)
    return found


def one_round(trainer: CohortTrainer, clients: int) -> None:
    """Train a round and wait for the accelerator."""
    total = trainer.initial()
    for chunk in trainer.train(trainer.initial(), np.arange(clients), 0):
        total += chunk.updates.sum(dim=0)
    total.sum().item()


class PlainLoop:
    """The loop anybody would write: client after client."""

    def __init__(self, workload: EngineWorkload, device: torch.device, *, clients: int) -> None:
        self.workload, self.clients = workload, clients
        examples = examples_for(workload)
        module = workload.net.build(workload.shape, 10, seed=0).to(device)
        samples = Samples(
            examples.train_inputs, examples.train_labels, accelerator=device, dtype=torch.float32
        )
        self.trainer = LoopTrainer(module, samples, ExecutionOptions(device))
        self.start = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
        self.stream = BatchStream(shards(examples, workload.clients), 0)

    def run(self) -> None:
        """Train its clients one after another."""
        updates, _ = self.train(self.start, np.arange(self.clients), 0)
        updates.sum().item()

    def train(
        self, start: torch.Tensor, clients: np.ndarray, round_index: int
    ) -> tuple[torch.Tensor, np.ndarray]:
        """Return some clients' updates [C, P] in a round, and how many steps each took."""
        training = self.workload.training
        batches = self.stream.take(
            clients,
            training.steps(self.stream.counts[clients], round_index),
            round_index=round_index,
            batch_size=training.batch_size_in(round_index),
        )
        updates, _ = self.trainer.train(start, batches, SgdSettings.of(training, round_index))
        return updates, batches.steps


def counted_flops(workload: EngineWorkload) -> float:
    """Return a round's FLOPs by torch's own counter, extrapolated from one batch of one client."""
    from torch.utils.flop_counter import FlopCounterMode

    module = workload.net.build(workload.shape, 10, seed=0)
    batch = torch.zeros(workload.training.batch_size, *workload.shape)
    labels = torch.zeros(len(batch), dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        torch.nn.functional.cross_entropy(module(batch), labels).backward()  # type: ignore[no-untyped-call]
    samples = workload.training.samples_per_round(np.full(workload.clients, workload.samples)).sum()
    return float(counter.get_total_flops()) / len(batch) * float(samples)


def thread_counts(device: torch.device) -> tuple[int, ...]:
    """Return the numbers of threads worth trying: one and all on a CPU; an accelerator does not care."""
    every = torch.get_num_threads()
    return tuple(sorted({1, every})) if device.type == "cpu" else (every,)


def _no_progress(step: str) -> None:
    return


def time_workload(
    workload: EngineWorkload,
    acceleration: Acceleration,
    *,
    repeats: int,
    plain_frac: float,
    progress: Callable[[str], None] = _no_progress,
) -> Timing:
    """Time engine and plain loop in turn; the plain loop trains only a fraction of the clients, at equal cost each.

    The plain loop runs with one thread and with all of torch's, and the better counts: on small operators or a busy
    machine the threads' barriers cost more than a second core brings.
    """
    progress(f"{workload.name}: first round")
    engine = engine_for(workload, acceleration)
    few = max(1, round(workload.clients * plain_frac))
    plain = PlainLoop(workload, engine.accelerator, clients=few)
    first_s = best_s(lambda: one_round(engine, workload.clients), 1)
    plain_s: dict[int, float] = {}
    engine_s = float("inf")
    with torch_threads(1):
        plain.run()
    for repeat in range(1, repeats + 1):
        for threads in thread_counts(engine.accelerator):
            # What was far slower at the first try is not tried again: it can take minutes.
            if repeat > 1 and plain_s[threads] > _FAR * min(plain_s.values()):
                continue
            progress(f"{workload.name}: plain loop, threads: {threads}, {repeat} of {repeats}")
            with torch_threads(threads):
                took_s = best_s(plain.run, 1) * workload.clients / few
            plain_s[threads] = min(plain_s.get(threads, took_s), took_s)
        progress(f"{workload.name}: engine, {repeat} of {repeats}")
        engine_s = min(engine_s, best_s(lambda: one_round(engine, workload.clients), 1))
    best = min(plain_s, key=lambda threads: plain_s[threads])
    plan = engine.plan
    return Timing(
        workload,
        plain_s=plain_s[best],
        plain_threads=best,
        threads=tuple(threads for threads, took_s in plain_s.items() if took_s <= _NEARLY * plain_s[best]),
        engine_s=engine_s,
        first_s=first_s,
        gflops=counted_flops(workload) / engine_s / 1e9,
        plan=f"{plan.path}, stacks of {plan.stack_size}, {plan.workers} workers",
        convolutions="kernel" if plan.direct else "torch",
    )


def matrix_gflops(device: torch.device, repeats: int = 10) -> float:
    """Measure the accelerator's rate of float32 matrix products, at the better number of threads."""
    side = 1024 if device.type == "cpu" else 8192
    left, right = torch.randn(side, side, device=device), torch.randn(side, side, device=device)

    def product() -> None:
        (left @ right).sum().item()

    best = 0.0
    for threads in thread_counts(device):
        with torch_threads(threads):
            product()
            best = max(best, 2.0 * side**3 / best_s(product, repeats) / 1e9)
    return best


@dataclass(frozen=True)
class Machine:
    """What the figures depend on besides the program."""

    accelerator: str
    cores: int | None
    load: float | None
    """Processes that wanted a core in the minute before anything was measured; None where this is not known."""
    torch_version: str
    torch_vectors: str
    """The processor's vector instructions that torch uses."""
    kernel_vector_bits: int | None
    """Width of our own kernel's vectors; None where there is no kernel."""
    matrix_gflops: float

    @classmethod
    def measured(cls, accelerator: torch.device) -> Machine:
        """Look at this machine, before anything else is measured."""
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        return cls(
            accelerator=_accelerator_name(accelerator),
            cores=os.cpu_count(),
            load=load,
            torch_version=torch.__version__,
            torch_vectors=torch.backends.cpu.get_cpu_capability(),
            kernel_vector_bits=vector_bits() if accelerator.type == "cpu" else None,
            matrix_gflops=matrix_gflops(accelerator),
        )

    @property
    def busy(self) -> bool:
        """Whether others used so much of the machine that the figures are worth little."""
        return self.load is not None and self.load > 0.25 * (self.cores or 1)


def _accelerator_name(accelerator: torch.device) -> str:
    if accelerator.type == "cuda":
        return f"{accelerator} ({torch.cuda.get_device_name(accelerator)})"
    return str(accelerator)


@dataclass(frozen=True)
class Scaling:
    """Time and memory of a round by number of clients."""

    clients: int
    round_s: float
    memory_mb: float
    """Peak resident memory so far."""


def time_scaling(acceleration: Acceleration, *, repeats: int, most: int = 500) -> list[Scaling]:
    """Time rounds of 20, 100 and up to 500 active clients out of the same 500."""
    workload = EngineWorkload(
        "scaling", MnistCnn(), (1, 28, 28), most, 20, Training(local_epochs=1, batch_size=5), 0.0
    )
    engine = engine_for(workload, acceleration, most)
    one_round(engine, 20)
    found = []
    for clients in (20, 100, most):
        round_s = best_s(lambda active=clients: one_round(engine, active), repeats)  # type: ignore[misc]
        found.append(Scaling(clients, round_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3))
    return found
