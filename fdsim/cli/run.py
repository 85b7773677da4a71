"""`fdsim run`: simulate, learn, and say what to type next when a run stops early."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fdsim.cli.options import (
    Device,
    FleetWorkers,
    NoCode,
    Overrides,
    RayAddress,
    ScenarioFile,
    say_own_code,
    trust,
    uses_ray,
)
from fdsim.errors import RunError, StrategyFailureError

if TYPE_CHECKING:
    from rich.console import Console


def run(
    scenario: ScenarioFile,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="RUN_DIR", help="Run folder; by default runs/<name>.")
    ] = None,
    sets: Overrides = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the last checkpoint.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing run.")] = False,
    device: Device = None,
    executor: Annotated[
        str,
        typer.Option(
            "--executor", help="local, or ray to spread a large fleet and every cohort over a cluster."
        ),
    ] = "local",
    address: RayAddress = None,
    shards: Annotated[
        int | None, typer.Option("--shards", min=1, help="With ray: parts of a cohort trained in parallel.")
    ] = None,
    workers: FleetWorkers = None,
    no_code: NoCode = False,
) -> None:
    """Simulate the fleet, train every strategy on its trace, and print a summary table."""
    from fdsim.cli.console import PlainConsole
    from fdsim.distributed.fleet import FleetSpread
    from fdsim.distributed.sharding import Sharding
    from fdsim.pipeline import RunChoices, run_scenario
    from fdsim.progress import Terminal
    from fdsim.scenario import load_scenario

    on_cluster = uses_ray(executor, address=address, shards=shards)
    choices = RunChoices(
        resume,
        force,
        device,
        fleet=FleetSpread(workers, on_cluster, address),
        sharding=Sharding(shards or 2, address) if on_cluster else None,
    )
    loaded = load_scenario(scenario, sets or [], code=trust(no_code))
    if resume:
        say_own_code()
    folder = out or Path("runs") / loaded.name
    console = PlainConsole()
    try:
        with termination_as_interrupt(), Terminal(console, loaded.rounds) as progress:
            run_scenario(loaded, folder, choices, callbacks=[progress])
    except KeyboardInterrupt:
        print(f"Interrupted. Resume with: {_resuming(scenario, out, sets)}", file=sys.stderr)
        raise
    except RunError as error:
        raise type(error)(f"{error}. Once fixed, resume with: {_resuming(scenario, out, sets)}") from error
    # Only now, since pandas is not needed before.
    from fdsim.inspect.summary import print_summary
    from fdsim.telemetry.reader import open_run

    print_summary(folder, console)
    _write_report(folder, console)
    failed = open_run(folder).failed
    if failed:
        told = "; ".join(f"{label}: {message}" for label, message in failed.items())
        raise StrategyFailureError(
            f"{folder}: {len(failed)} of {len(loaded.strategies)} strategies failed. {told}"
        )


def _resuming(scenario: Path, out: Path | None, sets: list[str] | None) -> str:
    words = ["fdsim", "run", str(scenario), *(["--out", str(out)] if out else [])]
    return shlex.join([*words, *(word for setting in sets or [] for word in ("--set", setting)), "--resume"])


def _write_report(folder: Path, console: Console) -> None:
    """Write the report; the run is already complete, so a failing report is reported and nothing more."""
    from fdsim.report import write_report

    try:
        said = f"open it in a browser: {write_report(folder)}"
    except Exception as error:
        said = f"the run is complete, but its report could not be written ({type(error).__name__}: {error})"
    console.print(said, markup=False, highlight=False, soft_wrap=True)


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
