"""`fdsim run`: the live view, the closing table, and what to type next when a run stops early."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from fdsim.errors import RunError
from fdsim.run import RunChoices, run_scenario
from fdsim.scenario import load_scenario
from fdsim.view import Terminal


def run_and_show(
    path: Path, out: Path | None, overrides: list[str], *, resume: bool, force: bool, device: str | None
) -> None:
    """Runs a scenario while showing it, then prints the closing table."""
    from fdsim.summary import print_summary

    scenario = load_scenario(path, overrides)
    folder = out or Path("runs") / scenario.name
    console = Console()
    choices = RunChoices(resume=resume, force=force, device=device)
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


@contextmanager
def termination_as_interrupt() -> Iterator[None]:
    """Treats SIGTERM like Ctrl-C, so that job schedulers get the same clean stop."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
