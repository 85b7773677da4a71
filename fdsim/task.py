"""From a prepared scenario to the task every strategy learns on."""

from __future__ import annotations

from fdsim.learning.cohort import CohortTrainer
from fdsim.learning.engine import Task
from fdsim.prepare import Prepared
from fdsim.strategies.base import Setting


def make_task(prepared: Prepared, *, device: str | None = None) -> Task:
    """Puts data and net on the accelerator; `device` overrides the scenario's choice."""
    scenario = prepared.scenario
    acceleration = scenario.acceleration
    if device is not None:
        acceleration = acceleration.model_copy(update={"device": device})
    trainer = CohortTrainer(
        net=scenario.net,
        examples=scenario.data.load(),
        indices=prepared.indices,
        training=scenario.training,
        acceleration=acceleration,
        seed=scenario.seed,
    )
    setting = Setting(
        clients=scenario.clients,
        rounds=scenario.rounds,
        parameters=trainer.parameters,
        seed=scenario.seed,
        share=prepared.share,
        true_cluster=prepared.true_cluster,
        accelerator=trainer.accelerator,
        dtype=trainer.dtype,
    )
    return Task(
        trainer=trainer,
        setting=setting,
        optimiser=scenario.training.server_optimiser,
        global_learning_rate=scenario.training.global_learning_rate,
        evaluate_every=scenario.telemetry.evaluate_every,
        similarity_every=scenario.telemetry.similarity_every,
        counterfactual=scenario.telemetry.counterfactual,
        convolutions="direct" if trainer.plan.direct else "torch",
    )
