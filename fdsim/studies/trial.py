"""Running one cell, wherever that happens: in a worker process here or on another machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fdsim.catalogue import import_also_from
from fdsim.progress import Silent

if TYPE_CHECKING:
    from fdsim.scenario import Scenario
    from fdsim.telemetry.schema import RoundRow

#: How long to wait for another process to let go of the cell's folder: workers outlive a killed driver for a moment.
_PATIENCE_S = 20.0


@dataclass(frozen=True)
class CellJob:
    """All a worker needs to know, as plain values that travel between processes and machines."""

    cell: str
    scenario: dict[str, Any]
    folder: str
    """The cell's run folder."""
    traces: str
    """The folder of the shared trace cache."""
    trace_key: str
    import_from: tuple[str, ...] = ()
    """Folders in which kinds of the user's own may live."""
    threads: int = 1
    device: str | None = None


class Progress(Silent):
    """Tells how much of a cell is done, not more often than `every_s`."""

    def __init__(
        self, tell: Callable[[float], None], rounds: int, strategies: Sequence[str], every_s: float = 0.25
    ) -> None:
        self._tell, self._rounds, self._strategies, self._every_s = tell, rounds, list(strategies), every_s
        self._told_s = 0.0

    def round_ends(self, label: str, row: RoundRow) -> None:
        """Pass the share of all rounds of all strategies on."""
        if time.monotonic() - self._told_s >= self._every_s:
            self._told_s = time.monotonic()
            before = self._strategies.index(label) * self._rounds
            self._tell((before + row.round + 1) / (self._rounds * len(self._strategies)))


def run_cell(
    job: CellJob, tell: Callable[[float], None] = lambda frac: None, *, scenario: Scenario | None = None
) -> float:
    """Run a cell, or what is left of it, and return the real time it took; `scenario` where it is made already."""
    began_s = time.perf_counter()
    for place in job.import_from:
        import_also_from(Path(place))
    from fdsim.run import RunChoices, run_scenario
    from fdsim.scenario import parse_scenario

    scenario = scenario or parse_scenario(job.scenario, job.cell)
    _use_threads(job.threads)
    folder = Path(job.folder)
    _wait_until_free(folder)
    choices = RunChoices(resume=True, device=job.device, trace_cache=Path(job.traces))
    labels = [strategy.label for strategy in scenario.strategies]
    run_scenario(scenario, folder, choices, progress=Progress(tell, scenario.rounds, labels))
    return time.perf_counter() - began_s


def _use_threads(threads: int) -> None:
    """Hold torch to its share of the cores; the number of threads is also part of what makes digits repeat."""
    import torch

    torch.set_num_threads(threads)


def _wait_until_free(folder: Path) -> None:
    from fdsim.telemetry.lock import writer_of

    give_up_s = time.monotonic() + _PATIENCE_S
    while writer_of(folder) is not None and time.monotonic() < give_up_s:
        time.sleep(0.1)
