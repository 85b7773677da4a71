"""All clients of a round, trained at once, in chunks that stream into the aggregate."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from fdsim.data.datasets import Examples
from fdsim.learning.cohort.allocator import keep_freed_memory
from fdsim.learning.cohort.evaluate import Evaluation, Evaluator
from fdsim.learning.cohort.memory import client_bytes
from fdsim.learning.cohort.plan import Cohorts, Plan, plan_for
from fdsim.learning.cohort.workers import Worker, on_workers
from fdsim.learning.config.acceleration import Acceleration
from fdsim.learning.config.training import Training
from fdsim.learning.local.batches import BatchStream
from fdsim.learning.local.keyed_dropout import with_keyed_dropout
from fdsim.learning.local.params import ParameterLayout, flat_of
from fdsim.learning.local.samples import Samples
from fdsim.learning.local.sgd import SgdSettings
from fdsim.learning.nets.library import Net
from fdsim.learning.paths.execution import ExecutionOptions
from fdsim.learning.paths.loop import LoopTrainer
from fdsim.learning.paths.stacked import StackedTrainer
from fdsim.learning.paths.vmap import VmapTrainer
from fdsim.rng import torch_seed

log = logging.getLogger("fdsim.learning")

_TRIED_SIZES = (1, 5, 10, 20, 40)

_PATHS: dict[str, type[LoopTrainer | VmapTrainer | StackedTrainer]] = {
    "plain": LoopTrainer,
    "vmap": VmapTrainer,
    "stacked": StackedTrainer,
}


@dataclass(frozen=True)
class Chunk:
    """What C clients trained at once came up with; on the accelerator, and nobody has waited for it."""

    clients: np.ndarray
    """[C]"""
    updates: torch.Tensor
    """[C, P] w_k − w_t"""
    losses: torch.Tensor
    """[C] mean loss over the local steps; NaN where loss or update is not finite; 0 where no step was taken."""
    steps: np.ndarray
    """[C] local steps taken."""


class CohortTrainer:
    """Trains any set of clients from any starting point: the same client, round and start give the same update."""

    def __init__(
        self,
        net: Net,
        examples: Examples,
        indices: tuple[np.ndarray, ...],
        training: Training,
        acceleration: Acceleration,
        seed: int,
    ) -> None:
        self.training, self.acceleration = training, acceleration
        accelerators = acceleration.accelerators()
        self.accelerator, self.dtype = accelerators[0], acceleration.dtype
        input_shape = tuple(examples.train_inputs.shape[1:])
        module = with_keyed_dropout(net.build(input_shape, examples.classes, torch_seed(seed, "net"))).to(
            self.dtype
        )
        ParameterLayout.of(
            module
        )  # refuses nets whose state is not in their parameters, before anything is moved
        self._stream = BatchStream(indices, seed)
        self.client_bytes = client_bytes(module, training, input_shape)
        cost = net.cost(input_shape, examples.classes)
        cohorts = Cohorts(module, cost, training.batch_size, self.client_bytes, len(indices))
        self.plan = plan_for(acceleration, cohorts, accelerators)
        self._initial = flat_of(module).to(self.accelerator)
        self._workers = self._make_lanes(module, examples, accelerators)
        if acceleration.stack_size == "tune":
            self.plan = self._fastest_plan()
        test = Samples(
            examples.test_inputs,
            examples.test_labels,
            accelerator=self.accelerator,
            dtype=self.dtype,
            channels_last=self.accelerator.type == "cpu",
        )
        self.data_bytes = float(
            examples.train_inputs.nbytes * len(accelerators) + examples.test_inputs.nbytes
        )
        mix = np.stack(
            [np.bincount(examples.train_labels[rows], minlength=examples.classes) for rows in indices]
        )
        self._evaluator = Evaluator(
            module.to(self.accelerator), test, classes=examples.classes, label_mix=mix.astype(np.float64)
        )

    def _make_lanes(
        self, module: torch.nn.Module, examples: Examples, accelerators: tuple[torch.device, ...]
    ) -> list[Worker]:
        keep_freed_memory()
        train = {
            device: Samples(
                examples.train_inputs,
                examples.train_labels,
                accelerator=device,
                dtype=self.dtype,
                channels_last=device.type == "cpu",
            )
            for device in accelerators
        }
        workers = []
        for number in range(self.plan.workers):
            device = accelerators[number % len(accelerators)]
            # A module of its own: modules lend their parameters out while they run.
            own = copy.deepcopy(module).to(device)
            # An only accelerator needs no thread; work on a CPU always has one, see workers.py.
            inline = device.type != "cpu" and len(accelerators) == 1
            workers.append(
                Worker(
                    _PATHS[self.plan.path](own, train[device], self._options(device)), device, inline=inline
                )
            )
        return workers

    def _fastest_plan(self) -> Plan:
        """Try a few stack sizes on the first steps of round 0 and return the fastest."""
        clients = np.arange(min(len(self.sample_counts), 2 * max(_TRIED_SIZES)))
        few = np.minimum(4.0 / self.training.steps(self.sample_counts[clients]), 1.0)
        found: dict[int, float] = {}
        for size in _TRIED_SIZES:
            self.plan = replace(self.plan, stack_size=size)
            for _ in range(2):
                began_s = time.perf_counter()
                for chunk in self.train(self._initial, clients, 0, work_frac=few):
                    chunk.losses.sum().item()
                found[size] = min(found.get(size, np.inf), time.perf_counter() - began_s)
        size = min(found, key=lambda each: found[each])
        log.info("stack sizes tried: %s; chosen: %d", {each: round(s, 4) for each, s in found.items()}, size)
        return replace(self.plan, stack_size=size)

    def _options(self, device: torch.device) -> ExecutionOptions:
        return ExecutionOptions(
            accelerator=device,
            product_dtype=self.acceleration.product_dtype,
            compiled=self.plan.compiled,
            channels_last=device.type == "cpu",
            direct=self.plan.direct,
        )

    @property
    def parameters(self) -> int:
        """P."""
        return self._initial.numel()

    @property
    def sample_counts(self) -> np.ndarray:
        """[K] samples of each client."""
        return self._stream.counts

    def initial(self) -> torch.Tensor:
        """Return the model [P] before round 0."""
        return self._initial.clone()

    def learning_rate(self, round_index: int) -> float:
        """Return η_L of a round."""
        return self.training.learning_rate_in(round_index)

    def train(
        self, start: torch.Tensor, clients: np.ndarray, round_index: int, work_frac: np.ndarray | None = None
    ) -> Iterator[Chunk]:
        """Yield the updates of `clients`, chunk by chunk, those with the most steps first.

        `work_frac` [S] is the share of its steps that each client finishes, rounded down to whole steps.
        """
        clients = np.asarray(clients, dtype=np.int64)
        steps = self.training.steps(self._stream.counts[clients], round_index)
        if work_frac is not None:
            # The tolerance keeps 0.6 × 5 steps at 3 whatever the rounding.
            steps = np.floor(steps * np.asarray(work_frac, dtype=np.float64) + 1e-9).astype(np.int64)
        # Clients of a chunk finish together as nearly as can be, and the stack sheds them from its end.
        order = np.argsort(-steps, kind="stable")
        size = max(1, min(self.plan.stack_size, -(-len(clients) // self.plan.workers)))
        jobs = [
            self._job(start, clients[part], steps[part], round_index)
            for part in (order[first : first + size] for first in range(0, len(order), size))
        ]
        return on_workers(self._workers, jobs)

    def _job(
        self, start: torch.Tensor, clients: np.ndarray, steps: np.ndarray, round_index: int
    ) -> Callable[[Worker], Chunk]:
        sgd = SgdSettings.of(self.training, round_index)
        batch_size = self.training.batch_size_in(round_index)

        def train_chunk(worker: Worker) -> Chunk:
            batches = self._stream.take(clients, steps, round_index=round_index, batch_size=batch_size)
            with torch.enable_grad():
                updates, losses = worker.path.train(start.detach().to(worker.accelerator), batches, sgd)
            broken = ~torch.isfinite(updates.sum(dim=1))
            losses = losses.detach().masked_fill(broken, float("nan"))
            return Chunk(clients, updates.to(start.device), losses.to(start.device), steps)

        return train_chunk

    def evaluate(self, params: torch.Tensor) -> Evaluation:
        """Return how good the model [P] is on the test set; one host sync."""
        return self._evaluator.evaluate(params)
