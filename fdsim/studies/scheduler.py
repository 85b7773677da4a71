"""Conducting a study: give trials to an executor, try failed ones again, write down what became of each."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fdsim.studies.executors.base import Advanced, Ended, Event, Executor, Failed, Started
from fdsim.studies.folder import StudyFolder
from fdsim.studies.plan import Trial
from fdsim.studies.progress import StudyView
from fdsim.studies.trial import TrialJob

_TICK_S = 0.5


@dataclass(frozen=True)
class StudyOutcome:
    """How a study ended."""

    folder: Path
    complete: tuple[Trial, ...]
    failed: tuple[tuple[Trial, str], ...]
    """Trials that kept failing, each with what its last attempt said."""


def run_trials(
    folder: StudyFolder, executor: Executor, view: StudyView, *, device: str | None = None
) -> StudyOutcome:
    """Run every trial that is not complete yet; the folder is open, and so is the executor."""
    plan = folder.plan
    done = [trial for trial in plan.trials if folder.status(trial) == "complete"]
    todo = deque(in_good_order(trial for trial in plan.trials if folder.status(trial) != "complete"))
    work = _Work({trial.id: trial for trial in plan.trials}, plan.study.table.retries)
    view.begins(plan, done)
    while todo or work.running:
        while todo and len(work.running) < executor.slots:
            trial = todo.popleft()
            work.begin(trial)
            executor.submit(job_of(trial, folder, device=device))
        for event in executor.wait(_TICK_S):
            todo.extend(_take(event, work, folder, view))
        view.ticks()
    outcome = StudyOutcome(
        folder.path,
        tuple(trial for trial in plan.trials if folder.status(trial) == "complete"),
        tuple((trial, message) for trial, message in work.failed),
    )
    folder.close("failed" if outcome.failed else "complete")
    view.ends(outcome.failed)
    return outcome


class _Work:
    """What is going on: running trials, their tries in this session, and what failed for good."""

    def __init__(self, trials: dict[str, Trial], retries: int) -> None:
        self.trials, self.retries = trials, retries
        self.running: dict[str, float] = {}
        self.tries: dict[str, int] = {}
        self.failed: list[tuple[Trial, str]] = []

    def begin(self, trial: Trial) -> None:
        self.running[trial.id] = time.monotonic()
        self.tries[trial.id] = self.tries.get(trial.id, 0) + 1


def _take(event: Event, work: _Work, folder: StudyFolder, view: StudyView) -> Iterable[Trial]:
    """Take one event in, and return trials to try again."""
    trial = work.trials[event.trial]
    if isinstance(event, Started):
        folder.update(trial, status="running", attempts=folder.attempts(trial) + 1, where=event.where)
        view.trial_starts(trial, event.where)
    elif isinstance(event, Advanced):
        view.trial_advances(trial, event.frac)
    elif isinstance(event, Ended):
        del work.running[trial.id]
        folder.update(trial, status="complete", wall_s=round(event.wall_s, 3), error=None)
        view.trial_ends(trial, event.wall_s)
    elif isinstance(event, Failed):
        del work.running[trial.id]
        if event.again and work.tries[trial.id] <= work.retries:
            folder.update(trial, status="waiting", error=event.message)
            view.trial_fails(trial, event.message, again=True)
            return [trial]
        folder.update(trial, status="failed", error=event.message)
        work.failed.append((trial, event.message))
        view.trial_fails(trial, event.message, again=False)
    return []


def in_good_order(trials: Iterable[Trial]) -> list[Trial]:
    """Sort trials: one of each trace first, so that others find it made, and long ones before short ones."""
    seen: set[str] = set()
    keyed = []
    for index, trial in enumerate(trials):
        keyed.append((trial.trace_key in seen, -trial.work, index, trial))
        seen.add(trial.trace_key)
    return [trial for *_, trial in sorted(keyed, key=lambda item: item[:3])]


def job_of(trial: Trial, folder: StudyFolder, *, device: str | None = None) -> TrialJob:
    """Say what a worker needs to know of a trial."""
    study = folder.plan.study
    return TrialJob(
        trial=trial.id,
        scenario=trial.scenario.as_tables(),
        folder=str(folder.run_folder(trial).resolve()),
        traces=str(folder.traces.resolve()),
        trace_key=trial.trace_key,
        import_from=tuple(str(path) for path in (*study.import_from, Path.cwd())),
        threads=study.table.threads_per_run,
        device=device,
    )
