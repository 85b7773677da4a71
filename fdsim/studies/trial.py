"""Run one trial, in a worker process on this machine or on another."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fdsim.catalogue import import_also_from, own_module
from fdsim.errors import InputError
from fdsim.telemetry.callback import Callback

if TYPE_CHECKING:
    from fdsim.scenario import Scenario
    from fdsim.telemetry.schema import RoundRow

#: How long to wait for another process to release the trial's folder: workers briefly outlive a killed driver.
_PATIENCE_S = 20.0


@dataclass(frozen=True)
class TrialJob:
    """All that a worker needs, as plain values that travel between processes and machines."""

    trial: str
    scenario: dict[str, Any]
    folder: str
    """The trial's run folder."""
    traces: str
    """The folder of the shared trace cache."""
    trace_key: str
    import_from: tuple[str, ...] = ()
    """Folders that user-defined kinds are imported from."""
    threads: int = 1
    device: str | None = None
    callbacks: tuple[str, ...] = ()
    """Classes of callbacks as module:Class, one object of each for this trial."""


class TrialProgress(Callback):
    """Reports the completed fraction of a trial, at most once every `every_s`."""

    def __init__(
        self, tell: Callable[[float], None], rounds: int, strategies: Sequence[str], every_s: float = 0.25
    ) -> None:
        self._tell, self._rounds, self._strategies, self._every_s = tell, rounds, list(strategies), every_s
        self._told_s = 0.0

    def round_end(self, label: str, row: RoundRow) -> None:
        """Report the completed fraction of all rounds of all strategies."""
        if time.monotonic() - self._told_s >= self._every_s:
            self._told_s = time.monotonic()
            before = self._strategies.index(label) * self._rounds
            self._tell((before + row.round + 1) / (self._rounds * len(self._strategies)))


def run_trial(
    job: TrialJob, tell: Callable[[float], None] = lambda frac: None, *, scenario: Scenario | None = None
) -> float:
    """Run a trial, or what is left of it, and return its wall time; `scenario` is given where already parsed."""
    began_s = time.perf_counter()
    for place in reversed(job.import_from):
        import_also_from(Path(place))
    from fdsim.distributed.fleet import FleetSpread
    from fdsim.pipeline import RunChoices, run_scenario
    from fdsim.scenario import parse_scenario

    scenario = scenario or parse_scenario(job.scenario, job.trial)
    _use_threads(job.threads)
    folder = Path(job.folder)
    _wait_until_free(folder)
    choices = RunChoices(
        resume=True,
        device=job.device,
        trace_cache=Path(job.traces),
        # The other cores have trials of their own.
        fleet=FleetSpread(job.threads),
    )
    labels = [strategy.label for strategy in scenario.strategies]
    callbacks = [callback_class(name)() for name in job.callbacks]
    bars = TrialProgress(tell, scenario.rounds, labels)
    run_scenario(scenario, folder, choices, callbacks=[bars, *callbacks])
    return time.perf_counter() - began_s


def callback_class(name: str) -> Callable[[], Any]:
    """Return the class that module:Class names, from an installed package or one of the folders of the study."""
    module, _, path = name.partition(":")
    try:
        found: Any = own_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ModuleNotFoundError, AttributeError) as error:
        remedy = (
            "name a class as module:Class; the file is looked for beside the study and in the current folder"
        )
        raise InputError("callbacks", f"there is no '{name}' ({error})", remedy) from None
    return found  # type: ignore[no-any-return]


def _use_threads(threads: int) -> None:
    """Limit torch to its part of the cores; results repeat to the last digit only with the same thread count."""
    import torch

    torch.set_num_threads(threads)


def _wait_until_free(folder: Path) -> None:
    from fdsim.telemetry.lock import writer_of

    give_up_s = time.monotonic() + _PATIENCE_S
    while writer_of(folder) is not None and time.monotonic() < give_up_s:
        time.sleep(0.1)
