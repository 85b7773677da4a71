"""`fdsim show`: a run's summary table, or its progress if still running."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fdsim.cli.options import RunDir

if TYPE_CHECKING:
    from fdsim.telemetry.reader import Run


def show(run: RunDir) -> None:
    """Show a run's summary table, or its progress if still running."""
    from fdsim.cli.console import PlainConsole
    from fdsim.inspect.summary import print_summary
    from fdsim.telemetry.doubts import blaming_edits
    from fdsim.telemetry.reader import open_run

    opened, console = open_run(run), PlainConsole()
    console.print(f"{run}: {_status(opened)}", soft_wrap=True)
    for warned in opened.manifest.get("warnings", []):
        console.print(f"warning: {warned}", soft_wrap=True)
    for label, facts in opened.manifest["strategies"].items():
        if facts.get("message"):
            console.print(f"{label}: {facts['message']}", soft_wrap=True)
    if any(opened.progress.values()):
        with blaming_edits(run):
            print_summary(run, console)


def _status(run: Run) -> str:
    facts = run.manifest
    text = f"{run.status}, {rounds_done(run)} rounds"
    return f"{text} ({facts['message']})" if facts.get("message") else text


def rounds_done(run: Run) -> str:
    """Rounds done of those planned; from the least to the most where strategies differ."""
    done = run.progress.values()
    least, most = min(done, default=0), max(done, default=0)
    return f"{least if least == most else f'{least}–{most}'}/{run.manifest['rounds']}"
