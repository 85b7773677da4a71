"""The verbs of the command line as functions: run a scenario or a study, make a trace.

run = fdsim.run("scenarios/quickstart.toml", overrides={"rounds": 20})
run.plot("accuracy")
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fdsim.errors import InputError, RunError, RunFolderError
from fdsim.scenario import load_scenario
from fdsim.telemetry.callback import Callback, Callbacks, refuse_arguments, refuse_deaf
from fdsim.telemetry.reader import Run

if TYPE_CHECKING:
    from fdsim.scenario import Scenario
    from fdsim.studies.progress import StudyProgress
    from fdsim.telemetry.study_reader import Study
    from fdsim.trace import Trace

Overrides = Sequence[str] | Mapping[str, Any]


def run(
    scenario: Path | str | Mapping[str, Any] | Scenario,
    out: Path | str | None = None,
    *,
    overrides: Overrides | None = None,
    resume: bool = False,
    force: bool = False,
    callbacks: Sequence[Any] = (),
    progress: bool = True,
    device: str | None = None,
    workers: int | None = None,
) -> Run:
    """Run a scenario (a file, TOML text, a dict or a Scenario) and return the run.

        run = fdsim.run("scenarios/quickstart.toml", overrides={"rounds": 20})
        run.summary()

    The folder is `runs/<name>` unless `out` is given. An existing run is never overwritten without `force=True`; an
    unfinished one continues with `resume=True`. `callbacks`, objects, classes or "module:Class", are told what happens,
    see `fdsim.Callback`. A large fleet is simulated by as many processes as there are cores, or by `workers`.
    """
    from fdsim.distributed.fleet import FleetSpread
    from fdsim.pipeline import RunChoices, run_scenario

    loaded = load_scenario(scenario, overrides or ())
    folder = Path("runs") / loaded.name if out is None else Path(out)
    choices = RunChoices(resume=resume, force=force, device=device, fleet=FleetSpread(workers))
    own = _listening(callbacks)
    with _in_python(), _shown(loaded.rounds, progress) as bars:
        run_scenario(loaded, folder, choices, callbacks=[*bars, *own])
    return Run(folder)


def run_study(
    study: Path | str,
    out: Path | str | None = None,
    *,
    overrides: Overrides | None = None,
    workers: int | None = None,
    callbacks: Sequence[str | type] = (),
    progress: bool = True,
    device: str | None = None,
) -> Study:
    """Run what is left of a study file's trials, in processes of their own, and return the study.

        study = fdsim.run_study("scenarios/quickstart.study.toml", overrides={"study.seeds": 3})
        study.rounds.groupby(["strategy", "round"])["test_accuracy"].mean()

    `callbacks` are classes, or "module:Class", from a file that the trials' processes can import too; every trial makes
    its own object of each, without arguments, and tells it what happens: see `fdsim.Callback`.
    """
    from fdsim.studies.launch import StudyChoices, default_folder, run_plan
    from fdsim.studies.plan import plan_study
    from fdsim.studies.study_file import load_study
    from fdsim.telemetry.study_reader import open_study

    plan = plan_study(load_study(study, _as_texts(overrides or ())))
    folder = default_folder(plan) if out is None else Path(out)
    choices = StudyChoices(workers=workers, device=device, callbacks=_importable(callbacks))
    with _in_python(), _study_shown(progress) as shown:
        outcome = run_plan(plan, folder, choices, progress=shown)
    if outcome.failed:
        raise RunError(
            f"{len(outcome.failed)} of {len(plan.trials)} trials failed. The same call tries them again; "
            f"the output of their processes is in {folder / 'logs'}"
        )
    return open_study(folder)


def _as_texts(overrides: Overrides) -> Sequence[str]:
    """Write overrides as `--set` takes them."""
    if not isinstance(overrides, Mapping):
        return overrides
    import tomli_w

    return [f"{key}={tomli_w.dumps({'_': value})[4:].strip()}" for key, value in overrides.items()]


def _importable(callbacks: Sequence[str | type]) -> tuple[str, ...]:
    """Name callbacks so that another process can import them, and check before anything runs that it could."""
    from fdsim.studies.trial import callback_class

    names = []
    for one in callbacks:
        if not isinstance(one, str | type):
            raise InputError(
                "callbacks",
                f"{type(one).__name__} is given as an object, but trials run in processes of their own",
                "give the class, or 'module:Class'; every trial makes its own object",
            )
        name = one if isinstance(one, str) else f"{one.__module__}:{one.__qualname__}"
        if name.startswith("__main__:") or "<locals>" in name:
            raise InputError(
                "callbacks",
                f"{name.rpartition(':')[2]} is in no file that the trials' processes could import",
                "put the class into a module beside the study and import it from there",
            )
        found = callback_class(name)
        if isinstance(found, type):
            refuse_deaf(found)
        refuse_arguments(found, remedy="give its arguments defaults; every trial makes its own object")
        names.append(name)
    return tuple(names)


def _listening(callbacks: Sequence[Any]) -> list[Any]:
    """Make an object of every callback that is given as a class or "module:Class"; refuse what hears nothing."""
    from fdsim.studies.trial import callback_class

    if isinstance(callbacks, str | type) or not isinstance(callbacks, Iterable):
        raise InputError("callbacks", "a single callback is given", "give a list of callbacks")
    own = []
    for one in callbacks:
        made = callback_class(one) if isinstance(one, str) else one
        if isinstance(one, str | type):
            refuse_arguments(made, remedy="give an object instead of the class")
            made = made()
        refuse_deaf(made)
        own.append(made)
    return own


def make_trace(
    scenario: Path | str | Mapping[str, Any] | Scenario,
    out: Path | str,
    *,
    overrides: Overrides | None = None,
    callbacks: Sequence[Any] = (),
    progress: bool = True,
    workers: int | None = None,
) -> Trace:
    """Simulate the fleet of a scenario, without any learning, and write its trace to `out`.

        trace = fdsim.make_trace("scenarios/quickstart.toml", "trace.parquet")
        trace.to_pandas()["cause"].value_counts()

    A large fleet is simulated by as many processes as there are cores, or by `workers`; the trace is the same.
    `callbacks`, objects, classes or "module:Class", are told what happens, see `fdsim.Callback`.
    """
    from fdsim.distributed.fleet import FleetSpread
    from fdsim.pipeline import simulate_trace
    from fdsim.prepare import prepare

    loaded = load_scenario(scenario, overrides or ())
    own = _listening(callbacks)
    with _in_python(), _shown(loaded.rounds, progress) as bars:
        told = Callbacks([*bars, *own])
        return simulate_trace(prepare(loaded), Path(out), told, fleet=FleetSpread(workers))


@contextmanager
def _shown(rounds: int, progress: bool) -> Iterator[list[Callback]]:
    """Give the progress bars that fit the place: a notebook's, a terminal's, or none."""
    if not progress:
        yield []
        return
    from fdsim.progress import NotebookBars, Terminal

    if in_notebook():
        yield [NotebookBars(rounds)]
        return
    from rich.console import Console

    with Terminal(Console(), rounds) as shown:
        yield [shown]


@contextmanager
def _study_shown(progress: bool) -> Iterator[StudyProgress]:
    """Give the progress of a study that fits the place."""
    from fdsim.studies.progress import SilentStudy, StudyTerminal

    if not progress:
        yield SilentStudy()
    elif in_notebook():
        from fdsim.studies.notebook import StudyNotebook

        yield StudyNotebook()
    else:
        from rich.console import Console

        with StudyTerminal(Console()) as shown:
            yield shown


def in_notebook() -> bool:
    """Whether this is a notebook's kernel, which shows HTML; IPython on a terminal is none."""
    if "ipykernel" not in sys.modules or "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    return hasattr(get_ipython(), "kernel")


_WORDS = {"--force": "force=True", "--resume": "resume=True", "--out": "out"}


@contextmanager
def _in_python() -> Iterator[None]:
    """Name arguments where a remedy names options of the command line."""
    try:
        yield
    except RunFolderError as error:
        raise type(error)(error.place, error.problem, _reworded(error.remedy)) from None


def _reworded(remedy: str) -> str:
    for option, argument in _WORDS.items():
        remedy = remedy.replace(option, argument)
    return remedy
