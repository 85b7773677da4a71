"""Trains all clients of a round, in chunks that stream into the global update."""

from __future__ import annotations

import copy
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from fdsim.catalogue import is_own
from fdsim.data.datasets import Examples
from fdsim.data.holdings import Holdings
from fdsim.errors import RunError
from fdsim.learning.cohort.dealing import train_dealt, worth_dealing
from fdsim.learning.cohort.evaluate import Evaluator
from fdsim.learning.cohort.memory import client_bytes, keep_freed_memory
from fdsim.learning.cohort.plan import CohortSpec, plan_for
from fdsim.learning.cohort.workers import Worker
from fdsim.learning.config.acceleration import Acceleration
from fdsim.learning.config.training import Training
from fdsim.learning.local.batches import BatchStream
from fdsim.learning.local.keyed_dropout import with_keyed_dropout
from fdsim.learning.local.params import ParameterLayout, flat_of
from fdsim.learning.local.samples import Samples
from fdsim.learning.local.sgd import SgdSettings
from fdsim.learning.nets.cost import refuse_misfit
from fdsim.learning.nets.library import Net
from fdsim.learning.paths.direct_training import DirectTraining
from fdsim.learning.paths.execution import ExecutionOptions
from fdsim.learning.paths.loop import LoopTrainer
from fdsim.learning.paths.stacked import StackedTrainer
from fdsim.learning.paths.vmap import VmapTrainer
from fdsim.learning.trainer import Chunk, Evaluation
from fdsim.rng import torch_seed

log = logging.getLogger("fdsim.learning")

_TRAINERS: dict[str, type[LoopTrainer | VmapTrainer | StackedTrainer]] = {
    "loop": LoopTrainer,
    "vmap": VmapTrainer,
    "stacked": StackedTrainer,
}


class CohortTrainer:
    """Trains any clients from any parameters: the same client, round and start give the same update."""

    def __init__(
        self,
        net: Net,
        examples: Examples,
        indices: Sequence[np.ndarray],
        training: Training,
        acceleration: Acceleration,
        seed: int,
        most_selected: int | None = None,
    ) -> None:
        """Put data and net on the accelerators; a round can select `most_selected` clients, None for all."""
        self._training, self._acceleration = training, acceleration
        accelerators = acceleration.accelerators()
        acceleration.set_up_cuda()
        self.accelerator, self.dtype = accelerators[0], acceleration.dtype
        input_shape = tuple(examples.train_inputs.shape[1:])
        module = with_keyed_dropout(net.build(input_shape, examples.classes, torch_seed(seed, "net"))).to(
            self.dtype
        )
        # Rejects nets whose state is not in their parameters, before anything is moved.
        ParameterLayout.of(module)
        if is_own(net):
            # `Net.cost` has looked already, unless the class says itself what it costs.
            refuse_misfit(module, input_shape, examples.classes, name=net.kind)
        self._stream = BatchStream(indices, seed)
        self.client_bytes = client_bytes(module, training, input_shape)
        cost = net.cost(input_shape, examples.classes)
        data_bytes = float(examples.train_inputs.nbytes + examples.test_inputs.nbytes)
        at_once = len(indices) if most_selected is None else most_selected
        spec = CohortSpec(module, cost, training.batch_size, self.client_bytes, at_once, data_bytes)
        self.plan = plan_for(acceleration, spec, accelerators)
        self._initial = flat_of(module).to(self.accelerator)
        self._workers = self._make_workers(module, examples, accelerators)
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
        mix = Holdings.of(indices).label_counts(examples.train_labels, examples.classes)
        self._evaluator = Evaluator(
            module.to(self.accelerator),
            test,
            label_counts=np.bincount(examples.test_labels, minlength=examples.classes),
            label_mix=mix.astype(np.float64),
        )

    def _make_workers(
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
            execution = ExecutionOptions(
                accelerator=device,
                product_dtype=self._acceleration.product_dtype,
                compiled=self.plan.compiled,
                channels_last=device.type == "cpu",
                direct=self.plan.direct,
            )
            trainer = _TRAINERS[self.plan.path](own, train[device], execution)
            # A single GPU needs no thread; work on a CPU always has one, see workers.py.
            inline = device.type != "cpu" and len(accelerators) == 1
            workers.append(Worker(trainer, device, inline=inline))
        return workers

    @property
    def parameters(self) -> int:
        """P."""
        return self._initial.numel()

    def initial(self) -> torch.Tensor:
        """Return the global model [P] before round 0."""
        return self._initial.clone()

    def train(
        self, start: torch.Tensor, clients: np.ndarray, round_index: int, work_frac: np.ndarray | None = None
    ) -> Iterator[Chunk]:
        """Yield the updates of `clients`, chunk by chunk, those with the most steps first.

        `work_frac` [S] is the fraction of its steps that each client completes, rounded down to whole steps.
        """
        clients = np.asarray(clients, dtype=np.int64)
        steps = self._training.steps(self._stream.counts[clients], round_index)
        if work_frac is not None:
            # The tolerance keeps 0.6 × 5 steps at 3 whatever the rounding.
            steps = np.floor(steps * np.asarray(work_frac, dtype=np.float64) + 1e-9).astype(np.int64)
        # Clients of a chunk finish together as nearly as can be, and the stack sheds them from its end.
        order = np.argsort(-steps, kind="stable")
        settings = SgdSettings.of(self._training, round_index)
        direct = all(_direct(worker, settings) is not None for worker in self._workers)
        if direct and worth_dealing(self._workers, start):
            train_part = partial(self._train_part, start, round_index)
            yield from train_dealt(self._workers, start, clients[order], steps[order], train_part)
            return
        size = max(1, min(self.plan.stack_size, -(-len(clients) // self.plan.workers)))
        # At most one chunk per worker is trained or waits to be taken, in order: memory stays at that.
        pending: deque[Future[Chunk]] = deque()
        for number, first in enumerate(range(0, len(order), size)):
            if len(pending) == len(self._workers):
                yield pending.popleft().result()
            worker, part = self._workers[number % len(self._workers)], order[first : first + size]
            pending.append(
                worker.executor.submit(
                    self._train_chunk, start, clients[part], steps[part], round_index, worker
                )
            )
        while pending:
            yield pending.popleft().result()

    def _train_part(
        self, start: torch.Tensor, round_index: int, worker: Worker, part: Chunk, steps: np.ndarray
    ) -> None:
        """Train clients one by one, and put their results where they belong."""
        settings = SgdSettings.of(self._training, round_index)
        batch_size = self._training.batch_size_in(round_index)
        training = _direct(worker, settings)
        assert training is not None
        # Batches are drawn for a few clients that have about as many: each would get as many as the most.
        for first in range(0, len(steps), self.plan.stack_size):
            some = part.rows(first, first + self.plan.stack_size)
            taken = steps[first : first + self.plan.stack_size]
            batches = self._stream.take(some.clients, taken, round_index=round_index, batch_size=batch_size)
            training.train_into(some.updates, some.losses, start.detach(), batches, settings)
        part.losses.masked_fill_(~torch.isfinite(part.updates.sum(dim=1)), float("nan"))

    def _train_chunk(
        self,
        start: torch.Tensor,
        clients: np.ndarray,
        steps: np.ndarray,
        round_index: int,
        worker: Worker,
        *,
        half: bool = False,
    ) -> Chunk:
        """Train clients at once or, if the accelerator runs out of memory, in two halves, as all chunks from then on."""
        try:
            batches = self._stream.take(
                clients, steps, round_index=round_index, batch_size=self._training.batch_size_in(round_index)
            )
            settings = SgdSettings.of(self._training, round_index)
            with torch.enable_grad():
                updates, losses = worker.trainer.train(
                    start.detach().to(worker.accelerator), batches, settings
                )
            not_finite = ~torch.isfinite(updates.sum(dim=1))
            losses = losses.detach().masked_fill(not_finite, float("nan"))
            return Chunk(clients, updates.to(start.device), losses.to(start.device))
        except torch.cuda.OutOfMemoryError as error:
            if half or len(clients) == 1:
                raise _out_of_memory(worker, len(clients), error) from None
        # Not inside the handler: the error keeps the tensors of the first try alive.
        return self._train_halves(start, clients, steps, round_index, worker)

    def _train_halves(
        self, start: torch.Tensor, clients: np.ndarray, steps: np.ndarray, round_index: int, worker: Worker
    ) -> Chunk:
        size = -(-len(clients) // 2)
        if worker.accelerator.type == "cuda":
            torch.cuda.empty_cache()
        log.warning(
            "%s: out of memory with %d clients at once, continuing with %d; acceleration.stack_size = %d avoids this",
            *(worker.accelerator, len(clients), size, size),
        )
        self.plan = replace(self.plan, stack_size=min(self.plan.stack_size, size))
        halves = [
            self._train_chunk(start, clients[part], steps[part], round_index, worker, half=True)
            for part in (slice(None, size), slice(size, None))
        ]
        return Chunk(
            clients,
            torch.cat([each.updates for each in halves]),
            torch.cat([each.losses for each in halves]),
        )

    def evaluate(self, params: torch.Tensor) -> Evaluation:
        """Return how good the global model [P] is on the test set; one host sync."""
        return self._evaluator.evaluate(params)

    def named(self, params: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the global model [P] as the net's state dict, on the host."""
        return self._evaluator.named(params)


def _direct(worker: Worker, settings: SgdSettings) -> DirectTraining | None:
    """Return what trains clients one by one in a worker; None where it trains stacks."""
    return worker.trainer.direct_for(settings) if isinstance(worker.trainer, StackedTrainer) else None


def _out_of_memory(worker: Worker, clients: int, error: Exception) -> RunError:
    reason = str(error).split(". ")[0]
    return RunError(
        f"{worker.accelerator}: out of memory even with {clients} clients at once ({reason})."
        " Lower acceleration.stack_size or training.batch_size, or use an accelerator with more memory"
    )
