"""Give a study's trials to an executor, retry failed ones, and record the status of each."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fdsim.studies.executors.base import Advanced, Ended, Event, Executor, Failed, Started
from fdsim.studies.folder import StudyFolder
from fdsim.studies.plan import Trial
from fdsim.studies.progress import StudyProgress
from fdsim.studies.trial import TrialJob
from fdsim.studies.worker_use import WorkerClock, WorkerUse
from fdsim.telemetry.manifest import COMPLETE, ENDED, WITH_FAILURES

_TICK_S = 0.5


@dataclass(frozen=True)
class StudyOutcome:
    """How a study ended."""

    folder: Path
    complete: tuple[Trial, ...]
    failed: tuple[tuple[Trial, str], ...]
    """Trials that kept failing, each with the message of its last attempt."""
    use: WorkerUse | None = None
    """How the workers were used; None if there was nothing left to run."""
    with_failures: tuple[tuple[Trial, dict[str, str]], ...] = ()
    """Complete trials in which some strategy failed, diverged say: label → reason."""


def run_trials(
    folder: StudyFolder,
    executor: Executor,
    progress: StudyProgress,
    *,
    device: str | None = None,
    callbacks: tuple[str, ...] = (),
) -> StudyOutcome:
    """Run every trial that is not complete yet; folder and executor are open."""
    plan = folder.plan
    done = [trial for trial in plan.trials if folder.status(trial) in ENDED]
    todo = deque(in_good_order(trial for trial in plan.trials if folder.status(trial) not in ENDED))
    session = _Session({trial.id: trial for trial in plan.trials}, plan.study.table.retries)
    progress.begins(plan, done)
    clock, most = WorkerClock(), 1
    while todo or session.running:
        while todo and len(session.running) < executor.slots:
            trial = todo.popleft()
            session.begin(trial)
            executor.submit(job_of(trial, folder, device=device, callbacks=callbacks))
        most = max(most, len(session.running))
        for event in executor.wait(_TICK_S):
            clock.take(event)
            todo.extend(_take(event, session, folder, progress))
        progress.ticks()
    complete = tuple(trial for trial in plan.trials if folder.status(trial) in ENDED)
    outcome = StudyOutcome(
        folder.path,
        complete,
        tuple(session.failed),
        clock.use(most),
        tuple((trial, failed) for trial in complete if (failed := folder.failed_strategies(trial))),
    )
    folder.close("failed" if outcome.failed else WITH_FAILURES if outcome.with_failures else COMPLETE)
    progress.ends(outcome.failed, outcome.use)
    return outcome


class _Session:
    """The state of a session: running trials, attempts made, and trials given up."""

    def __init__(self, trials: dict[str, Trial], retries: int) -> None:
        self.trials, self.retries = trials, retries
        self.running: set[str] = set()
        self.tries: dict[str, int] = {}
        self.failed: list[tuple[Trial, str]] = []

    def begin(self, trial: Trial) -> None:
        self.running.add(trial.id)
        self.tries[trial.id] = self.tries.get(trial.id, 0) + 1


def _take(event: Event, session: _Session, folder: StudyFolder, progress: StudyProgress) -> Iterable[Trial]:
    """Record one event and return the trials to retry."""
    trial = session.trials[event.trial]
    if isinstance(event, Started):
        folder.update(trial, status="running", attempts=folder.attempts(trial) + 1, where=event.where)
        progress.trial_starts(trial, event.where)
    elif isinstance(event, Advanced):
        progress.trial_advances(trial, event.frac)
    elif isinstance(event, Ended):
        session.running.remove(trial.id)
        progress.trial_ends(trial, event.wall_s, failed=tuple(folder.end(trial, event.wall_s)))
    elif isinstance(event, Failed):
        session.running.remove(trial.id)
        if event.again and session.tries[trial.id] <= session.retries:
            folder.update(trial, status="waiting", error=event.message)
            progress.trial_fails(trial, event.message, again=True)
            return [trial]
        folder.update(trial, status="failed", error=event.message)
        session.failed.append((trial, event.message))
        progress.trial_fails(trial, event.message, again=False)
    return []


def in_good_order(trials: Iterable[Trial]) -> list[Trial]:
    """Sort trials: one of each trace first, so that others find the trace, and long ones before short ones."""
    seen: set[str] = set()
    keyed = []
    for index, trial in enumerate(trials):
        keyed.append((trial.trace_key in seen, -trial.work, index, trial))
        seen.add(trial.trace_key)
    return [trial for *_, trial in sorted(keyed, key=lambda item: item[:3])]


def job_of(
    trial: Trial, folder: StudyFolder, *, device: str | None = None, callbacks: tuple[str, ...] = ()
) -> TrialJob:
    """Return what a worker needs to know about a trial."""
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
        callbacks=callbacks,
    )
