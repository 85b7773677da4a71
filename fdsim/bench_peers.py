"""The same rounds in a peer's simulator, for whoever has installed it (`pip install 'fdsim[peers]'`)."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from fdsim.bench_engine import EngineWorkload, examples_for, shards
from fdsim.errors import ScenarioError
from fdsim.learning.samples import scaled


def time_pfl(workload: EngineWorkload, *, rounds: int) -> float:
    """Answers with the seconds of pfl-research's fastest round of a workload, all clients in the cohort."""
    try:
        from pfl.aggregate.simulate import SimulatedBackend
        from pfl.algorithm.base import NNAlgorithmParams
        from pfl.algorithm.federated_averaging import FederatedAveraging
        from pfl.callback.base import TrainingProcessCallback
        from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
        from pfl.metrics import Metrics
        from pfl.model.pytorch import PyTorchModel
    except ImportError as error:
        raise ScenarioError(
            "--peers", f"pfl cannot be imported ({error})", "pip install 'fdsim[peers]'"
        ) from None

    class Watch(TrainingProcessCallback):  # type: ignore[misc, unused-ignore]
        """Notes when each round ends."""

        def __init__(self) -> None:
            self.times_s: list[float] = [time.perf_counter()]

        def after_central_iteration(
            self, aggregate_metrics: Any, model: Any, *, central_iteration: int
        ) -> tuple[bool, Any]:
            self.times_s.append(time.perf_counter())
            return False, Metrics()

    module = _pfl_module(workload)
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    data = _pfl_data(workload)
    training, watch = workload.training, Watch()
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
            callbacks=[watch],
        )
    return float(np.diff(watch.times_s).min())


def _pfl_module(workload: EngineWorkload) -> torch.nn.Module:
    """Gives a net the two methods that pfl asks for."""
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
