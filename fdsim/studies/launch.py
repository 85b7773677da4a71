"""Starting a study: where its folder is, which executor runs it.

outcome = run_study("scenarios/paper/cifar10.toml")
fdsim.open_study(outcome.folder).rounds
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fdsim.errors import InputError
from fdsim.studies.executors.base import Executor
from fdsim.studies.executors.local import LocalChoices, LocalExecutor, visible_gpus
from fdsim.studies.folder import StudyFolder
from fdsim.studies.plan import StudyPlan, plan_study
from fdsim.studies.progress import SilentStudy, StudyProgress
from fdsim.studies.scheduler import StudyOutcome, run_trials
from fdsim.studies.study_file import load_study

EXECUTORS = ("local", "ray")


@dataclass(frozen=True)
class StudyChoices:
    """How to run a study; none of it changes a result."""

    executor: str = "local"
    workers: int | None = None
    """Trials at a time; as many as fit if not given."""
    address: str | None = None
    """Of a Ray cluster: auto, host:port, ray://host:port, or local to start one."""
    results: str | None = None
    """With Ray: shared (all machines see the study folder), ship (back to the driver), or a URL such as s3://bucket/folder."""
    device: str | None = None
    callbacks: tuple[str, ...] = ()
    """Callbacks of the user's own as module:Class; every trial makes its own, in its process."""


def run_study(
    path: Path | str,
    out: Path | None = None,
    choices: StudyChoices | None = None,
    *,
    overrides: Sequence[str] = (),
    progress: StudyProgress | None = None,
) -> StudyOutcome:
    """Plan a study, run the trials that are not complete yet, and return the outcome."""
    plan = plan_study(load_study(path, overrides))
    return run_plan(plan, out or default_folder(plan), choices, progress=progress)


def run_plan(
    plan: StudyPlan, out: Path, choices: StudyChoices | None = None, *, progress: StudyProgress | None = None
) -> StudyOutcome:
    """Run the trials of a plan that are not complete yet."""
    choices, progress = choices or StudyChoices(), progress or SilentStudy()
    with StudyFolder(out, plan) as folder, _executor(plan, out, choices) as executor:
        return run_trials(folder, executor, progress, device=choices.device, callbacks=choices.callbacks)


def default_folder(plan: StudyPlan) -> Path:
    """Return the default study folder, studies/<name>."""
    return Path("studies") / plan.study.name


def default_workers(plan: StudyPlan) -> int:
    """Return how many trials run at a time on this machine by default."""
    with _local(plan, Path(), StudyChoices()) as executor:
        return executor.slots


def _executor(plan: StudyPlan, out: Path, choices: StudyChoices) -> Executor:
    table = plan.study.table
    if choices.executor == "ray":
        from fdsim.studies.executors.ray import RayChoices, RayExecutor

        return RayExecutor(
            RayChoices(
                address=choices.address,
                workers=choices.workers,
                threads_per_run=table.threads_per_run,
                gpus_per_run=table.gpus_per_run,
                results=choices.results,
            ),
            out,
        )
    if choices.executor != "local":
        raise InputError(
            "executor", f"no executor called '{choices.executor}'", f"one of: {', '.join(EXECUTORS)}"
        )
    for name in ("address", "results"):
        if getattr(choices, name) is not None:
            raise InputError(f"--{name}", "is for a Ray cluster", "add --executor ray")
    return _local(plan, out, choices)


def _local(plan: StudyPlan, out: Path, choices: StudyChoices) -> LocalExecutor:
    table = plan.study.table
    wants_gpu = (
        any(trial.scenario.acceleration.device != "cpu" for trial in plan.trials) and choices.device != "cpu"
    )
    return LocalExecutor(
        LocalChoices(
            workers=choices.workers,
            threads_per_run=table.threads_per_run,
            gpus_per_run=table.gpus_per_run,
            gpus=visible_gpus() if wants_gpu else (),
        ),
        out / "logs",
    )
