"""`fdsim run`: the live view, the closing table, and what to type next when a run stops early."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from fdsim.errors import InputError, RunError
from fdsim.progress import Terminal
from fdsim.run import RunChoices, run_scenario
from fdsim.scenario import load_scenario

if TYPE_CHECKING:
    from fdsim.distributed.sharding import Sharding


def run_and_show(path: Path, out: Path | None, overrides: list[str], choices: RunChoices) -> None:
    """Run a scenario while showing it, then print the closing table."""
    from fdsim.inspect.summary import print_summary

    scenario = load_scenario(path, overrides)
    folder = out or Path("runs") / scenario.name
    console = Console()
    again = ["fdsim", "run", str(path), *(["--out", str(out)] if out else [])]
    again += [word for setting in overrides for word in ("--set", setting)]
    try:
        with termination_as_interrupt(), Terminal(console, scenario.rounds) as view:
            run_scenario(scenario, folder, choices, view=view)
    except KeyboardInterrupt:
        print(f"stopped. Go on with: {shlex.join([*again, '--resume'])}", file=sys.stderr)
        raise
    except RunError as error:
        raise type(error)(f"{error}. When mended, go on with: {shlex.join([*again, '--resume'])}") from error
    print_summary(folder, console)
    _write_report(folder, console)


def _write_report(folder: Path, console: Console) -> None:
    """Write the report; the run is complete by now, so a report that fails is told and not counted against it."""
    from fdsim.report import write_report

    try:
        said = f"see it in a browser: {write_report(folder)}"
    except Exception as error:
        said = f"the run is complete, but its report could not be written ({type(error).__name__}: {error})"
    console.print(said, markup=False, highlight=False, soft_wrap=True)


def sharding_of(executor: str, address: str | None, shards: int | None) -> Sharding | None:
    """Work out whether, and how, cohorts are spread over a cluster."""
    if executor not in ("local", "ray"):
        raise InputError("--executor", f"no executor called '{executor}'", "there is: local, ray")
    if executor == "local":
        if address is not None or shards is not None:
            raise InputError(
                "--address" if address else "--shards", "is for a Ray cluster", "add --executor ray"
            )
        return None
    from fdsim.distributed.sharding import Sharding

    return Sharding(shards or 2, address)


@contextmanager
def termination_as_interrupt() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C, so that job schedulers get the same clean stop."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
