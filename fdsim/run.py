"""The whole pipeline on one page: scenario → trace → each strategy learns on it → telemetry.

run_scenario(load_scenario("scenarios/quickstart.toml"), Path("runs/quickstart"))
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import fdsim
from fdsim.errors import NumericalError, ScenarioError
from fdsim.prepare import Prepared, prepare
from fdsim.progress import Silent, View
from fdsim.scenario import Scenario, dump_scenario
from fdsim.telemetry.facts import RunFacts
from fdsim.telemetry.folder import RunFolder
from fdsim.trace import Trace, TraceRound, open_trace, write_trace
from fdsim.trace.cache import TraceCache

if TYPE_CHECKING:
    from fdsim.devices.config.simulation import SimulationConfig
    from fdsim.distributed.sharding import Sharding
    from fdsim.learning.engine import Task


@dataclass(frozen=True)
class RunChoices:
    """How to run, as opposed to what: none of this changes a result."""

    resume: bool = False
    force: bool = False
    device: str | None = None
    trace_cache: Path | None = None
    """Folder of traces by `Prepared.trace_key`, shared by the cells of a study."""
    sharding: Sharding | None = None
    """Spreads every cohort over a Ray cluster; this alone may change last digits, by the order of sums."""


def participation_rounds(
    prepared: Prepared, view: View, folder: RunFolder | None = None
) -> Iterator[TraceRound]:
    """Yield the trace of a scenario round by round, from its fleet or its participation table."""
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
    from fdsim.devices.engine.world import simulate

    setting = simulation_config(prepared)
    if folder is not None and scenario.telemetry.events:
        with folder.events_writer() as events:
            yield from simulate(
                setting, on_event=events.append, on_time=view.fleet_time, on_part=view.fleet_part
            )
    else:
        yield from simulate(setting, on_time=view.fleet_time, on_part=view.fleet_part)


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


def make_trace(
    prepared: Prepared, path: Path, view: View, folder: RunFolder | None = None, *, reference: bool = False
) -> Trace:
    """Simulate who takes part and write it to `path`, which appears only when complete."""
    rounds = reference_rounds(prepared) if reference else participation_rounds(prepared, view, folder)
    view.fleet_starts(prepared)
    trace = write_trace(
        path,
        view.watching(rounds),
        made_by=prepared.trace_key,
        true_cluster=prepared.true_cluster,
    )
    view.fleet_ends(trace)
    return trace


def run_scenario(
    scenario: Scenario, out: Path, choices: RunChoices | None = None, *, view: View | None = None
) -> Path:
    """Run a scenario into a run folder and return the folder."""
    choices, view = choices or RunChoices(), view or Silent()
    began_s = time.perf_counter()
    prepared = prepare(scenario)
    about = RunFacts(
        scenario_toml=dump_scenario(scenario),
        scenario_hash=scenario.content_hash,
        seed=scenario.seed,
        name=scenario.name,
        strategies=[strategy.label for strategy in scenario.strategies],
        rounds=scenario.rounds,
    )
    opened = (
        RunFolder.resume(out, **about)
        if choices.resume
        else RunFolder.create(out, **about, force=choices.force)
    )
    with opened as folder:
        trace = _trace_of(prepared, folder, choices, view)
        folder.manifest.update(trace_hash=trace.content_hash, trace_key=prepared.trace_key)
        _learn_all(prepared, trace, folder, choices, view)
        folder.complete(wall_s=time.perf_counter() - began_s)
    return out


def _trace_of(prepared: Prepared, folder: RunFolder, choices: RunChoices, view: View) -> Trace:
    if folder.trace_path.exists() and not folder.trace_damaged:
        trace = open_trace(folder.trace_path)
        if trace.made_by == prepared.trace_key:
            return trace
    # The event log belongs to the run, so a run that keeps one simulates its own fleet.
    if choices.trace_cache is not None and not prepared.scenario.telemetry.events:
        cache = TraceCache(choices.trace_cache)
        cache.fetch(prepared.trace_key, folder.trace_path, lambda path: make_trace(prepared, path, view))
        return open_trace(folder.trace_path)
    return make_trace(prepared, folder.trace_path, view, folder)


def _learn_all(prepared: Prepared, trace: Trace, folder: RunFolder, choices: RunChoices, view: View) -> None:
    from fdsim.prepare import make_task

    if all(folder.strategy(s.label).finished for s in prepared.scenario.strategies):
        return
    task = make_task(prepared, device=choices.device)
    folder.manifest.update(
        accelerator=str(task.federation.accelerator),
        convolutions=task.convolutions,
        fdsim=fdsim.__version__,
    )
    # Every strategy is asked first, so that a setting it cannot work with is told before hours of training.
    for strategy in prepared.scenario.strategies:
        strategy.check(task.federation)
    if choices.sharding is None:
        _learn_each(prepared, task, trace, folder, view)
        return
    from fdsim.distributed.sharding import sharded

    with sharded(task, prepared, choices.sharding, device=choices.device) as spread:
        _learn_each(prepared, spread, trace, folder, view)


def _learn_each(prepared: Prepared, task: Task, trace: Trace, folder: RunFolder, view: View) -> None:
    from fdsim.learning.engine import Learner, begin, learn

    for strategy in prepared.scenario.strategies:
        log = folder.strategy(strategy.label)
        if log.finished:
            continue
        with log:
            state = log.checkpoint_state()
            learner = begin(strategy, task) if state is None else Learner.from_state(state)
            view.strategy_starts(strategy.label, learner.next_round)
            try:
                for result in learn(strategy, task, trace, learner):
                    log.append(result.row, result.clients, result.snapshot)
                    if log.checkpoint_due(learner.next_round):
                        log.checkpoint(learner.as_state(), learner.next_round)
                    view.round_ends(strategy.label, result.row)
            except NumericalError as error:
                # One strategy that diverges is a result, not a reason to lose the others.
                log.fail(str(error))
                view.strategy_fails(strategy.label, str(error))
            else:
                log.finish()
                view.strategy_ends(strategy.label)
