"""The whole pipeline on one page: scenario → trace → each strategy learns on it → telemetry.

run_scenario(load_scenario("scenarios/quickstart.toml"), Path("runs/quickstart"))
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fdsim
from fdsim.data.memory import machine_bytes
from fdsim.errors import NumericalError, ScenarioError, ScenarioWarning
from fdsim.prepare import Prepared, doubts, prepare, refuse_impossible
from fdsim.scenario import Scenario
from fdsim.telemetry.callback import Callback, Callbacks
from fdsim.telemetry.folder import RunFolder
from fdsim.telemetry.tensorboard import TensorBoard
from fdsim.trace import Trace, TraceRound, open_trace, write_trace
from fdsim.trace.cache import TraceCache

if TYPE_CHECKING:
    from fdsim.devices.config.simulation import SimulationConfig
    from fdsim.distributed.fleet import FleetSpread
    from fdsim.distributed.sharding import Sharding
    from fdsim.learning.engine import Task
    from fdsim.strategies.base import Strategy
    from fdsim.telemetry.strategy_log import StrategyLog


@dataclass(frozen=True)
class RunChoices:
    """How to run, as opposed to what: nothing here changes a result."""

    resume: bool = False
    force: bool = False
    device: str | None = None
    trace_cache: Path | None = None
    """Folder of traces by `Prepared.trace_key`, shared by the trials of a study."""
    fleet: FleetSpread | None = None
    """Over how many processes a large fleet is spread; all cores where it is not given."""
    sharding: Sharding | None = None
    """Spreads every cohort over a Ray cluster; only this may change last digits, through the order of sums."""


def participation_rounds(
    prepared: Prepared,
    callback: Callback,
    folder: RunFolder | None = None,
    *,
    fleet: FleetSpread | None = None,
    beside: Path | None = None,
) -> Iterator[TraceRound]:
    """Yield the trace of a scenario round by round, from its fleet or its participation table.

    With a file `beside` which there is room, a large fleet may be spread over processes; without, rounds come as soon
    as they are closed.
    """
    scenario = prepared.scenario
    if scenario.participation is not None:
        from fdsim.participation.base import ParticipationSetting

        yield from scenario.participation.rounds(
            ParticipationSetting(
                rounds=scenario.rounds,
                seed=scenario.seed,
                round_interval_s=scenario.server.round_interval_s,
                true_cluster=prepared.true_cluster,
            )
        )
        return
    from fdsim.devices.engine.world import World

    config = simulation_config(prepared)
    if folder is not None and scenario.telemetry.events:
        with folder.events_writer() as events:
            yield from World(config, events.append, callback.trace_part).rounds(callback.trace_time)
    elif beside is None:
        yield from World(config, None, callback.trace_part).rounds(callback.trace_time)
    else:
        from fdsim.distributed.fleet import FleetSpread, Told, simulate_spread

        told = Told(callback.trace_time, callback.trace_part, callback.trace_note)
        yield from simulate_spread(config, fleet or FleetSpread(), beside=beside, told=told)


def simulation_config(prepared: Prepared) -> SimulationConfig:
    """Return all that the simulation of a scenario's fleet depends on."""
    from fdsim.devices.config.simulation import SimulationConfig

    scenario = prepared.scenario
    return SimulationConfig(
        fleet=scenario.fleet,
        server=scenario.server,
        workload=prepared.workload,
        rounds=scenario.rounds,
        seed=scenario.seed,
        outages=scenario.outages,
        cells=scenario.cells,
    )


def reference_rounds(prepared: Prepared) -> Iterator[TraceRound]:
    """Return the trace of a scenario's fleet by the reference model, round by round."""
    if prepared.scenario.participation is not None:
        raise ScenarioError(
            "participation",
            "the reference model simulates a fleet, and this scenario has none",
            "choose a scenario with [[fleet]] tables",
        )
    from fdsim.devices.reference import simulate_reference

    return simulate_reference(simulation_config(prepared))


def simulate_trace(
    prepared: Prepared,
    path: Path,
    callback: Callback,
    folder: RunFolder | None = None,
    *,
    fleet: FleetSpread | None = None,
    cache: Path | None = None,
    reference: bool = False,
) -> Trace:
    """Simulate participation and write the trace to `path`, which appears only when complete.

    With `cache`, a folder of traces by `Prepared.trace_key`, it is taken from there, or left there for others.
    """
    # The event log belongs to the run, so a run that keeps one simulates its own fleet.
    if cache is not None and not prepared.scenario.telemetry.events:
        make = partial(simulate_trace, prepared, callback=callback, fleet=fleet)
        TraceCache(cache).fetch(prepared.trace_key, path, make)
        return open_trace(path)
    rounds = (
        reference_rounds(prepared)
        if reference
        else participation_rounds(prepared, callback, folder, fleet=fleet, beside=path)
    )
    callback.trace_begin(prepared.scenario)
    trace = write_trace(
        path,
        rounds,
        on_round=callback.trace_round,
        made_by=prepared.trace_key,
        true_cluster=prepared.true_cluster,
    )
    callback.trace_end(trace)
    return trace


def run_scenario(
    scenario: Scenario, out: Path, choices: RunChoices | None = None, *, callbacks: Sequence[Any] = ()
) -> Path:
    """Run a scenario into a run folder and return the folder; callbacks are told what happens, see `Callback`."""
    choices = choices or RunChoices()
    began_s = time.perf_counter()
    prepared = prepare(scenario)
    refuse_impossible(prepared, machine_bytes())
    doubted = doubts(scenario)
    for doubt in doubted:
        warnings.warn(doubt, ScenarioWarning, stacklevel=2)
    opened = (
        RunFolder.resume(out, scenario)
        if choices.resume
        else RunFolder.create(out, scenario, force=choices.force)
    )
    own = [TensorBoard()] if scenario.telemetry.tensorboard else []
    told = Callbacks([*own, *callbacks])
    with opened as folder, told.during(scenario, out):
        if doubted:
            folder.manifest.update(warnings=doubted)
        trace = open_trace(folder.trace_path) if folder.trace_path.exists() else None
        if trace is None or trace.made_by != prepared.trace_key:
            trace = simulate_trace(
                prepared,
                folder.trace_path,
                told,
                folder,
                fleet=choices.fleet,
                cache=choices.trace_cache,
            )
        folder.record_trace(trace.content_hash, prepared.trace_key)
        _learn_all(prepared, trace, folder, choices, told)
        folder.complete(wall_s=time.perf_counter() - began_s)
    return out


def _learn_all(
    prepared: Prepared, trace: Trace, folder: RunFolder, choices: RunChoices, callback: Callback
) -> None:
    from fdsim.distributed.sharding import sharded
    from fdsim.prepare import make_task

    logs = [(strategy, folder.logs[strategy.label]) for strategy in prepared.scenario.strategies]
    if all(log.finished for _, log in logs):
        return
    task = make_task(prepared, device=choices.device)
    folder.manifest.update(
        accelerator=str(task.federation.accelerator),
        convolutions=task.convolutions,
        fdsim=fdsim.__version__,
    )
    # Every strategy is checked first, so that a setting it cannot work with is reported before hours of training.
    for strategy, log in logs:
        strategy.check(task.federation)
        # The states of built-in kinds are known to be storable, and may be large.
        if ":" in strategy.kind and not log.finished:
            _refuse_unstorable(strategy, strategy.start(task.federation))
    spread = (
        nullcontext(task)
        if choices.sharding is None
        else sharded(task, prepared, choices.sharding, device=choices.device)
    )
    with spread as task:
        for strategy, log in logs:
            if not log.finished:
                _learn(strategy, task, trace, log, callback)


def _refuse_unstorable(strategy: Strategy, state: dict[str, Any]) -> None:
    """Raise an error when a strategy's state could not be checkpointed, before a checkpoint is due."""
    from fdsim.strategies.base import where_defined
    from fdsim.telemetry.checkpoint import unstorable

    told = unstorable(state)
    if told is not None:
        raise ScenarioError(
            f"strategy '{strategy.label}', {where_defined(strategy)}",
            f"{told}, which a checkpoint cannot hold",
            "keep numbers, text, arrays or tensors; `cohort.stream()` gives random numbers without any state",
        )


def _learn(strategy: Strategy, task: Task, trace: Trace, log: StrategyLog, callback: Callback) -> None:
    from fdsim.learning.engine import Learner, begin, learn

    with log:
        learner = log.restored(partial(Learner.from_state, parameters=task.federation.parameters))
        learner = learner or begin(strategy, task)
        callback.strategy_begin(strategy.label, learner.next_round)

        def announced() -> Iterator[TraceRound]:
            for trace_round in trace:
                if trace_round.round >= learner.next_round:
                    callback.round_begin(strategy.label, trace_round.round)
                yield trace_round

        problem, every, first = None, task.telemetry.keep_models_every, learner.next_round
        try:
            for result in learn(strategy, task, announced(), learner):
                log.append(result.row, result.clients, result.snapshot)
                if result.row.round == first:
                    _refuse_unstorable(strategy, learner.strategy_state)
                if log.checkpoint_due(learner.next_round):
                    log.checkpoint(learner.as_state(), learner.next_round)
                if every and learner.next_round % every == 0:
                    log.keep_model(task.trainer.named(learner.params), result.row.round)
                callback.round_end(strategy.label, result.row)
        except NumericalError as error:
            # One strategy that diverges is a result, not a reason to lose the others.
            problem = str(error)
            log.fail(problem)
        else:
            log.keep_model(task.trainer.named(learner.params), None)
            log.finish()
        callback.strategy_end(strategy.label, problem)
