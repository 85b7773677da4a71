"""A single run over several machines: its cohort is trained by actors on a Ray cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fdsim.catalogue import import_also_from, own_folders
from fdsim.data.in_memory import holding
from fdsim.distributed.cluster import connect
from fdsim.prepare import Prepared, prepare
from fdsim.scenario import parse_scenario

if TYPE_CHECKING:
    import numpy as np

    from fdsim.data.datasets import Examples
    from fdsim.distributed.sharded_cohort import Order, Parts
    from fdsim.learning.engine import Task


@dataclass(frozen=True)
class Sharding:
    """Over how many Ray actors a cohort is spread, on which cluster, and what each may use."""

    shards: int
    address: str | None = None
    threads_per_shard: int = 1
    gpus_per_shard: float | None = None
    """If not given: one GPU each where the cluster has any."""


class ShardActor:
    """Trains slices of the cohort; lives in a process of the cluster."""

    def __init__(self, job: dict[str, Any], examples: Examples) -> None:
        import torch

        from fdsim.prepare import make_task

        for place in reversed(job["import_from"]):
            import_also_from(Path(place))
        torch.set_num_threads(job["threads"])
        scenario = parse_scenario(job["scenario"], "shard")
        scenario = scenario.model_copy(update={"data": holding(scenario.data, examples)})
        self._task = make_task(prepare(scenario), device=job["device"])

    def train(self, start: np.ndarray, order: Order) -> Parts:
        """Train a slice of a round's clients."""
        from fdsim.distributed.sharded_cohort import carry_out

        return carry_out(self._task, start, order)


@dataclass(frozen=True)
class _RayShard:
    """An actor, as the sharded cohort sees it."""

    actor: Any

    def begin(self, start: Any, order: Order) -> Any:
        return self.actor.train.remote(start, order)

    def collect(self, handle: Any) -> Parts:
        import ray

        parts: Parts = ray.get(handle)
        return parts


@contextmanager
def sharded(
    task: Task, prepared: Prepared, sharding: Sharding, *, device: str | None = None
) -> Iterator[Task]:
    """Spread a task's cohort over the actors of a cluster for as long as the context lasts."""
    from fdsim.distributed.sharded_cohort import ShardedCohort

    ours = connect(sharding.address)
    import ray

    actors: list[Any] = []
    try:
        gpus = sharding.gpus_per_shard
        if gpus is None:
            gpus = 1.0 if ray.cluster_resources().get("GPU") else 0.0
        # A shard keeps no state, so Ray may restart it elsewhere and retry, as often as needed.
        options = {
            "num_cpus": sharding.threads_per_shard,
            "num_gpus": gpus,
            "max_restarts": -1,
            "max_task_retries": -1,
        }
        examples = ray.put(prepared.scenario.data.examples())
        job = {
            "scenario": prepared.scenario.as_tables(),
            # The user's own kinds are found there as here.
            "import_from": [*map(str, own_folders()), *(path or str(Path.cwd()) for path in sys.path)],
            "threads": sharding.threads_per_shard,
            "device": device,
        }
        actors = [ray.remote(**options)(ShardActor).remote(job, examples) for _ in range(sharding.shards)]
        yield replace(
            task, trainer=ShardedCohort(task.trainer, [_RayShard(actor) for actor in actors], ray.put)
        )
    finally:
        for actor in actors:
            ray.kill(actor)
        if ours:
            ray.shutdown()
