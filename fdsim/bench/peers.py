"""The same rounds in other simulators, if they are installed (`pip install 'fdsim[peers]'`)."""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
import torch

from fdsim.bench.engine import (
    EngineWorkload,
    PlainLoop,
    Timing,
    best_s,
    engine_for,
    examples_for,
    one_round,
    shards,
)
from fdsim.errors import RunError, ScenarioError
from fdsim.learning.cohort.cohort import CohortTrainer
from fdsim.learning.config.acceleration import Acceleration
from fdsim.learning.local.samples import scaled
from fdsim.learning.torch_threads import torch_threads


@dataclass(frozen=True)
class PeerTiming:
    """The measurements of a workload in another simulator."""

    first_s: float
    """Its first round, including all one-time work."""
    round_s: float
    """The fastest of the rounds after the first."""

    @classmethod
    def of(cls, rounds_s: Sequence[float]) -> PeerTiming:
        """Derive it from the times of at least two rounds."""
        first_s, *later_s = rounds_s
        return cls(first_s, min(later_s))


def _nothing() -> None:
    return


class _Laps:
    """Times a peer's rounds; what is done between two of them does not count."""

    def __init__(self, between: Callable[[], object]) -> None:
        self.between, self.rounds_s = between, list[float]()
        self.start()

    def start(self) -> None:
        """Begin a round."""
        self._began_s = time.perf_counter()

    def end(self) -> None:
        """End a round, do what comes between, and begin the next."""
        self.rounds_s.append(time.perf_counter() - self._began_s)
        self.between()
        self.start()


def _missing(name: str, error: ImportError) -> ScenarioError:
    return ScenarioError("--peers", f"{name} cannot be imported ({error})", "pip install 'fdsim[peers]'")


@dataclass(frozen=True)
class PeerResult:
    """A peer on one workload, or the reason why it could not be timed."""

    peer: str
    workload: str = ""
    timing: PeerTiming | None = None
    threads: int = 0
    """At how many threads it was fastest."""
    engine_s: float = 0.0
    """The engine's fastest of as many rounds, each after one of the peer's."""
    missing: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times faster the engine is."""
        return None if self.timing is None else self.timing.round_s / self.engine_s

    @property
    def line(self) -> str:
        """The result as a sentence."""
        if self.timing is None:
            return self.missing
        return (
            f"{self.peer}, {self.workload}: {self.timing.round_s:.3f} s a round, {self.ratio:.2f} times the"
            f" engine's {self.engine_s:.3f} s; the first {self.timing.first_s:.3f} s; threads: {self.threads}"
        )


def peer_results(
    timings: Sequence[Timing],
    acceleration: Acceleration,
    *,
    rounds: int,
    flower_workers: int = 2,
    progress: Callable[[str], None] = lambda step: None,
) -> Iterator[PeerResult]:
    """Time each peer on the engine's workloads, at each number of threads that suited the plain loop; the best counts.

    The engine trains a round after each of the peer's, so that a slow time of the machine is one for both. For Flower,
    more than one thread means one worker that has them all.
    """

    def pfl(workload: EngineWorkload, threads: int, between: Callable[[], None]) -> PeerTiming:
        with torch_threads(threads):
            return time_pfl(workload, rounds=rounds, between=between)

    def flower(workload: EngineWorkload, threads: int, between: Callable[[], None]) -> PeerTiming:
        workers = flower_workers if threads == 1 else 1
        return time_flower(workload, rounds=rounds, workers=workers, threads=threads, between=between)

    peers: tuple[tuple[str, str, Callable[[EngineWorkload, int, Callable[[], None]], PeerTiming]], ...] = (
        ("pfl", "pfl-research {}", pfl),
        ("flwr", f"Flower {{}} on {flower_workers} Ray workers", flower),
    )
    for package, label, time_peer in peers:
        try:
            for timing in timings:
                workload, found = timing.workload, dict[int, tuple[PeerTiming, float]]()
                engine = engine_for(workload, acceleration)
                one_round(engine, workload.clients)
                # Flower's workers have one core each, whatever suits a single loop.
                for threads in sorted({1, *timing.threads}):
                    progress(f"{workload.name}: {package}, threads: {threads}")
                    engine_s: list[float] = []
                    peer = time_peer(
                        workload,
                        threads,
                        functools.partial(_engine_lap, engine, workload, engine_s),
                    )
                    # The engine's after the peer's first round, which does not count, does not either.
                    found[threads] = peer, min(engine_s[1:])
                best = min(found, key=lambda threads: found[threads][0].round_s)
                peer, beside_s = found[best]
                yield PeerResult(label.format(version(package)), workload.name, peer, best, beside_s)
        except ScenarioError as error:
            yield PeerResult(package, missing=str(error))


def _engine_lap(engine: CohortTrainer, workload: EngineWorkload, times_s: list[float]) -> None:
    times_s.append(best_s(lambda: one_round(engine, workload.clients), 1))


def time_pfl(
    workload: EngineWorkload, *, rounds: int, between: Callable[[], object] = _nothing
) -> PeerTiming:
    """Time rounds of a workload in pfl-research, all clients in the cohort, with something done between them."""
    try:
        from pfl.aggregate.simulate import SimulatedBackend
        from pfl.algorithm.base import NNAlgorithmParams
        from pfl.algorithm.federated_averaging import FederatedAveraging
        from pfl.callback.base import TrainingProcessCallback
        from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
        from pfl.metrics import Metrics
        from pfl.model.pytorch import PyTorchModel
    except ImportError as error:
        raise _missing("pfl", error) from None

    class Watch(TrainingProcessCallback):  # type: ignore[misc, unused-ignore]
        """Notes when each round ends."""

        def after_central_iteration(
            self, aggregate_metrics: Any, model: Any, *, central_iteration: int
        ) -> tuple[bool, Any]:
            laps.end()
            return False, Metrics()

    module = _pfl_module(workload)
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    data = _pfl_data(workload)
    training, laps = workload.training, _Laps(between)
    # It prints every round's metrics.
    with contextlib.redirect_stdout(io.StringIO()):
        FederatedAveraging().run(
            NNAlgorithmParams(
                central_num_iterations=rounds,
                evaluation_frequency=rounds + 1,
                train_cohort_size=workload.clients,
                val_cohort_size=0,
            ),
            SimulatedBackend(training_data=data, val_data=data),
            model,
            NNTrainHyperParams(
                local_batch_size=training.batch_size,
                local_num_epochs=training.local_epochs,
                local_learning_rate=training.learning_rate,
            ),
            NNEvalHyperParams(local_batch_size=training.batch_size),
            callbacks=[Watch()],
        )
    return PeerTiming.of(laps.rounds_s)


def _pfl_module(workload: EngineWorkload) -> torch.nn.Module:
    """Give a net the two methods that pfl requires."""
    from pfl.metrics import Weighted

    module = workload.net.build(workload.shape, 10, seed=0)

    def loss(inputs: torch.Tensor, labels: torch.Tensor, is_eval: bool = False) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(module(inputs), labels)

    def metrics(inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:
        return {"loss": Weighted(loss(inputs, labels).item() * len(labels), len(labels))}

    module.loss, module.metrics = loss, metrics  # type: ignore[assignment]
    return module


def _pfl_data(workload: EngineWorkload) -> Any:
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset

    examples = examples_for(workload)
    inputs = scaled(torch.from_numpy(examples.train_inputs), torch.float32)
    labels = torch.from_numpy(examples.train_labels)
    rows = shards(examples, workload.clients)

    def in_turn() -> Iterator[int]:
        while True:
            yield from range(workload.clients)

    turn = in_turn()
    return FederatedDataset(
        lambda user: PyTorchTensorDataset((inputs[rows[user]], labels[rows[user]]), user_id=str(user)),
        lambda: next(turn),
    )


@dataclass(frozen=True)
class FlowerRun:
    """A workload run in Flower."""

    rounds_s: list[float]
    """How long each round took."""
    steps: list[int]
    """Batches trained in each round, over all clients."""
    state: dict[str, torch.Tensor]
    """The model after the last round."""


def time_flower(
    workload: EngineWorkload,
    *,
    rounds: int,
    workers: int = 2,
    threads: int = 1,
    between: Callable[[], object] = _nothing,
) -> PeerTiming:
    """Time rounds of a workload in Flower's simulation engine on Ray, all clients in the cohort."""
    run = run_flower(workload, rounds=rounds, workers=workers, threads=threads, between=between)
    return PeerTiming.of(run.rounds_s)


def run_flower(
    workload: EngineWorkload,
    *,
    rounds: int,
    workers: int = 2,
    threads: int = 1,
    between: Callable[[], object] = _nothing,
) -> FlowerRun:
    """Run rounds of a workload in Flower, on `workers` workers of `threads` cores each, with something done between them.

    The first round begins when the server is ready and includes the start of Ray and its workers.
    """
    with _quiet_flower():
        try:
            import ray  # noqa: F401  # Without it, Flower would end the process.
            from flwr.app import ArrayRecord, Context
            from flwr.clientapp import ClientApp
            from flwr.serverapp import Grid, ServerApp
            from flwr.serverapp.strategy import FedAvg
            from flwr.simulation import run_simulation
        except ImportError as error:
            raise _missing("flwr", error) from None

        laps = _Laps(between)
        steps: list[int] = []
        latest: list[Any] = []

        class Checked(FedAvg):  # type: ignore[misc, unused-ignore]
            """Fails where FedAvg would continue with fewer clients: that would not be the round to time."""

            def aggregate_train(self, server_round: int, replies: Any) -> Any:
                replies = list(replies)
                for reply in replies:
                    if reply.has_error():
                        raise RunError(f"a client failed in Flower: {reply.error.reason}")
                if len(replies) != workload.clients:
                    raise RunError(f"{len(replies)} of {workload.clients} clients replied in Flower")
                steps.append(sum(int(reply.content["metrics"]["steps"]) for reply in replies))
                return super().aggregate_train(server_round, replies)

        def note(server_round: int, arrays: Any) -> None:
            if server_round == 0:
                laps.start()
            else:
                laps.end()
            latest[:] = [arrays]

        server, client = ServerApp(), ClientApp()

        @server.main()  # type: ignore[untyped-decorator, unused-ignore]
        def main(grid: Grid, context: Context) -> None:
            module = workload.net.build(workload.shape, 10, seed=0)
            # Nodes are still being registered when the first round is made up, so that a fraction is of too few.
            everyone = {"min_train_nodes": workload.clients, "min_available_nodes": workload.clients}
            Checked(fraction_evaluate=0.0, **everyone).start(
                grid, ArrayRecord(module.state_dict()), num_rounds=rounds, evaluate_fn=note
            )

        client.train()(functools.partial(_flower_client, workload, threads))
        run_simulation(
            server,
            client,
            num_supernodes=workload.clients,
            backend_config={
                "client_resources": {"num_cpus": threads, "num_gpus": 0.0},
                "init_args": {
                    "address": "local",
                    "num_cpus": workers * threads,
                    "log_to_driver": False,
                    "logging_level": "ERROR",
                },
            },
        )
    return FlowerRun(laps.rounds_s, steps, dict(latest[0].to_torch_state_dict()))


@functools.cache
def _flower_loop(workload: EngineWorkload) -> PlainLoop:
    """Return the loop of this worker process, made once: later clients find net and samples ready."""
    return PlainLoop(workload, torch.device("cpu"), clients=workload.clients)


def _flower_client(workload: EngineWorkload, threads: int, message: Any, context: Any) -> Any:
    """Train one client in a worker, on the batches the engine would give it."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

    torch.set_num_threads(threads)
    loop = _flower_loop(workload)
    module = loop.trainer.module
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    start = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    which = np.array([context.node_config["partition-id"]])
    _, steps = loop.train(start, which, message.content["config"]["server-round"] - 1)
    metrics = MetricRecord({"num-examples": workload.samples, "steps": int(steps[0])})
    content = RecordDict({"arrays": ArrayRecord(module.state_dict()), "metrics": metrics})
    return Message(content, reply_to=message)


@contextlib.contextmanager
def _quiet_flower() -> Iterator[None]:
    """Keep Flower and Ray from logging, sending telemetry, and changing the environment."""
    before, logger = dict(os.environ), logging.getLogger("flwr")
    with tempfile.TemporaryDirectory() as home:
        os.environ.update(
            # Read when Flower is imported.
            FLWR_TELEMETRY_ENABLED="0",
            # Flower writes an id of this machine there, even where it reports nothing.
            FLWR_HOME=home,
            RAY_USAGE_STATS_ENABLED="0",
            # Ray warns of a change to come, which clients on the CPU do not meet.
            RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
        )
        # Flower sets its own logger's level when it is imported, but not this switch.
        logger.disabled = True
        try:
            yield
        finally:
            logger.disabled = False
            os.environ.clear()
            os.environ.update(before)
