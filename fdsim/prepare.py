"""What a scenario fixes before anything runs: which client holds which data, and what a local round costs it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fdsim.catalogue import is_own
from fdsim.data import coupling
from fdsim.data.holdings import Holdings
from fdsim.data.memory import refuse_beyond
from fdsim.devices.engine.gc_pause import paused
from fdsim.errors import DataError
from fdsim.rng import stream
from fdsim.scenario import Scenario, hash_of
from fdsim.strategies.base import Federation
from fdsim.workload import Workload

if TYPE_CHECKING:
    from fdsim.learning.engine import Task

_BYTES_PER_PARAMETER = 4


@dataclass(frozen=True)
class Divided:
    """A scenario's data, divided among its K clients."""

    indices: Holdings
    """[K] rows of the training set that each client holds."""
    true_cluster: np.ndarray | None
    """[K] cluster of each client's data, where the partition has clusters."""
    group: np.ndarray
    """[K] fleet group of each client; zeros without a fleet."""


@dataclass(frozen=True)
class Prepared(Divided):
    """A scenario's data and work, divided among its K clients."""

    scenario: Scenario
    workload: Workload

    @property
    def trace_key(self) -> str:
        """A hash of everything the trace depends on: scenarios with equal keys share one trace."""
        tables = self.scenario.as_tables()
        about: dict[str, Any] = {
            name: tables.get(name)
            for name in ("seed", "rounds", "fleet", "server", "participation", "cells", "outages")
        }
        about["workload"] = [
            self.workload.cost.forward_flops,
            self.workload.cost.depthwise_frac,
            self.workload.bytes_down,
            self.workload.bytes_up,
            self.workload.samples.tolist(),
        ]
        about["true_cluster"] = None if self.true_cluster is None else self.true_cluster.tolist()
        return hash_of(about)

    @property
    def client_weight(self) -> np.ndarray:
        """[K] each client's weight in the average, by the scenario's weighting."""
        if self.scenario.training.weighting == "samples":
            counts = self.indices.counts.astype(np.float64)
            return np.asarray(counts / counts.sum())
        return np.full(len(self.indices), 1.0 / len(self.indices))


def divide(scenario: Scenario) -> Divided:
    """Divide the data among the clients."""
    return _divided(scenario, scenario.data.labels())


def divide_to_check(scenario: Scenario) -> Divided:
    """Divide the data as far as a check needs it: labels that are yet to be downloaded are taken as expected."""
    # Which device holds which shard takes longest for a million clients; only a strategy of the user's own could ask.
    own = any(is_own(strategy) for strategy in scenario.strategies)
    return _divided(scenario, scenario.data.expected_labels(), to_devices=own)


def _divided(scenario: Scenario, labels: np.ndarray, *, to_devices: bool = True) -> Divided:
    """Divide the data; without `to_devices` client k holds shard k whatever the coupling says."""
    clients = scenario.clients
    if clients > len(labels):
        raise DataError(
            "data",
            f"{clients} clients cannot share {len(labels)} training samples",
            "use fewer clients or more data",
        )
    division = scenario.data.partition.divide(labels, clients, stream(scenario.seed, "partition"))
    if scenario.fleet:
        group = np.repeat(np.arange(len(scenario.fleet)), [g.count for g in scenario.fleet])
    else:
        group = np.zeros(clients, dtype=np.int64)
    indices, true_cluster = Holdings.of(division.indices), division.true_cluster
    if not to_devices:
        coupling.check(scenario.coupling, clients, true_cluster)
        return Divided(indices, true_cluster, group)
    holds = coupling.assign(scenario.coupling, group, true_cluster, stream(scenario.seed, "coupling"))
    return Divided(indices.taken(holds), None if true_cluster is None else true_cluster[holds], group)


def prepare(scenario: Scenario, divider: Callable[[Scenario], Divided] = divide) -> Prepared:
    """Divide the data among the clients and compute what a local round costs each of them."""
    check_own_models(scenario)
    if scenario.participation is not None:
        scenario.participation.check_rounds(scenario.rounds)
    divided = divider(scenario)
    cost = scenario.net.cost(scenario.data.input_shape, scenario.data.classes)
    model_bytes = cost.parameters * _BYTES_PER_PARAMETER
    return Prepared(
        **vars(divided),
        scenario=scenario,
        workload=Workload(
            cost, scenario.training.samples_per_round(divided.indices.counts), model_bytes, model_bytes
        ),
    )


def check_own_models(scenario: Scenario) -> None:
    """Refuse device models and selections of the user's own that break their contract, which could hang a run."""
    placed = [
        (f"fleet[{index}].{family}", getattr(group, family))
        for index, group in enumerate(scenario.fleet)
        for family in ("battery", "connectivity", "usage", "compute")
    ]
    if scenario.fleet:
        placed.append(("server.selection", scenario.server.selection))
    own = {part.model_dump_json(): (place, part) for place, part in reversed(placed) if is_own(part)}
    if own:
        from fdsim.testing import check_own

        for place, part in reversed(own.values()):
            check_own(part, place, scenario.clients)


def refuse_impossible(prepared: Prepared, memory_bytes: float) -> None:
    """Raise an error when a run cannot fit into that much memory, however it is trained.

    Counted is the least that is at hand at once: the data, three copies of the net, and the order in which the client
    with the most work goes through its samples.
    """
    scenario = prepared.scenario
    source = scenario.data
    rows, largest = len(prepared.indices.rows), float(prepared.workload.samples.max())
    refuse_beyond(
        memory_bytes,
        float(source.value_bytes) * rows * math.prod(source.input_shape),
        place="data",
        what="the train set",
        remedy="use fewer or smaller samples",
    )
    refuse_beyond(
        memory_bytes,
        3.0 * _BYTES_PER_PARAMETER * prepared.workload.cost.parameters,
        place="net",
        what=f"the net, of {prepared.workload.cost.parameters:.3g} parameters,",
        remedy="choose a smaller net",
    )
    refuse_beyond(
        memory_bytes,
        16.0 * largest,
        place="training",
        what=f"the batches of one local round, {largest:.3g} samples,",
        remedy="lower local_epochs or local_steps",
    )


def check(prepared: Prepared, memory_bytes: float) -> None:
    """Raise an error where a run cannot fit into that much memory, or where a strategy cannot take part."""
    refuse_impossible(prepared, memory_bytes)
    federation = planned_federation(prepared)
    for strategy in prepared.scenario.strategies:
        strategy.check(federation)


def doubts(scenario: Scenario) -> list[str]:
    """Return what is allowed in a scenario but can hardly be meant."""
    found = scenario.data.doubts()
    if not scenario.fleet:
        return found
    server = scenario.server
    target = server.selection.target_of(scenario.clients)
    wanted = math.ceil(server.over_selection * target - 1e-9)
    if wanted > scenario.clients and server.over_selection > 1:
        found.append(
            f"server.over_selection: {server.over_selection:g} × {target} asks for {wanted} clients, "
            f"there are {scenario.clients}; every round selects all of them"
        )
    return found + _repeated_logs(scenario)


def _repeated_logs(scenario: Scenario) -> list[str]:
    """Return a sentence for each file of which devices replay logs that end before the run does."""
    used: dict[str, set[int]] = {}
    first = 0
    for group in scenario.fleet:
        clients = range(first, first + group.count)
        first += group.count
        for part in (group.connectivity, group.usage, group.battery):
            if part.kind == "replay":
                from fdsim.devices.models.replay import ReplayBattery, ReplayLink, ReplayUsage, rows_used

                if isinstance(part, ReplayLink | ReplayUsage | ReplayBattery):
                    used.setdefault(part.path, set()).update(rows_used(part, clients, scenario.seed))
    if not used:
        return []
    from fdsim.devices.models.replay import repeated_logs

    until_s = scenario.server.start_hour * 3600.0 + scenario.rounds * scenario.server.round_interval_s
    told = [repeated_logs(path, rows, until_s) for path, rows in sorted(used.items())]
    return [sentence for sentence in told if sentence]


def planned_federation(prepared: Prepared) -> Federation:
    """Describe the federation to strategies that check it before anything runs."""
    scenario = prepared.scenario
    return Federation(
        clients=scenario.clients,
        rounds=scenario.rounds,
        parameters=prepared.workload.cost.parameters,
        seed=scenario.seed,
        client_weight=prepared.client_weight,
        true_cluster=prepared.true_cluster,
        accelerator="cpu",
        dtype=np.dtype(np.float64 if scenario.acceleration.precision == "float64" else np.float32),
    )


def make_task(prepared: Prepared, *, device: str | None = None) -> Task:
    """Put data and net on the accelerator; `device` overrides the scenario's choice."""
    # torch makes so many objects that live for ever that looking for garbage takes a sixth of its import.
    with paused():
        from fdsim.learning.cohort.cohort import CohortTrainer
        from fdsim.learning.engine import Task

    scenario = prepared.scenario
    acceleration = scenario.acceleration
    if device is not None:
        acceleration = acceleration.model_copy(update={"device": device})
    trainer = CohortTrainer(
        net=scenario.net,
        examples=scenario.data.examples(),
        indices=prepared.indices,
        training=scenario.training,
        acceleration=acceleration,
        seed=scenario.seed,
        most_selected=scenario.most_selected,
    )
    federation = Federation(
        clients=scenario.clients,
        rounds=scenario.rounds,
        parameters=trainer.parameters,
        seed=scenario.seed,
        client_weight=prepared.client_weight,
        true_cluster=prepared.true_cluster,
        accelerator=trainer.accelerator,
        dtype=trainer.dtype,
        direct=trainer.plan.direct,
    )
    return Task(trainer, federation, scenario.training, scenario.telemetry)
