"""`fdsim study` and `fdsim compare`: many runs, and how they compare."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console


def study(
    file: Annotated[Path, typer.Argument(metavar="STUDY", help="A study file (TOML).")],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="STUDY_DIR", help="Study folder; studies/<name> if not given."),
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Override a key of the base, or of the study: study.seeds=3."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop.")] = False,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Trials at a time; as many as fit if not given.")
    ] = None,
    executor: Annotated[
        str, typer.Option("--executor", help="local (processes here) or ray (a cluster).")
    ] = "local",
    address: Annotated[
        str | None, typer.Option("--address", help="Ray cluster: auto, HOST:PORT, ray://HOST:PORT, or local.")
    ] = None,
    results: Annotated[
        str | None,
        typer.Option(
            "--results", help="With ray: shared folder (shared), back here (ship), or a URL: s3://…"
        ),
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", help="auto, cpu, cuda; the scenario's if not given.")
    ] = None,
) -> None:
    """Plan and run a study, resuming where it stopped, and print the comparison."""
    from rich.console import Console

    from fdsim.cli.run import termination_as_interrupt
    from fdsim.errors import RunError
    from fdsim.report import write_report
    from fdsim.studies.launch import StudyChoices, default_folder, default_workers, run_plan
    from fdsim.studies.plan import plan_study
    from fdsim.studies.preview import print_plan
    from fdsim.studies.progress import StudyTerminal
    from fdsim.studies.study_file import load_study

    console = Console()
    plan = plan_study(load_study(file, sets or []))
    folder = out or default_folder(plan)
    if dry_run:
        print_plan(plan, folder, console, workers=workers or default_workers(plan))
        return
    print_plan(plan, folder, console)
    choices = StudyChoices(executor, workers, address, results, device)
    try:
        with termination_as_interrupt(), StudyTerminal(console) as view:
            outcome = run_plan(plan, folder, choices, view=view)
    except KeyboardInterrupt:
        print(
            f"Interrupted. Resume with the same command: {shlex.join(['fdsim', *sys.argv[1:]])}",
            file=sys.stderr,
        )
        raise
    if outcome.complete:
        _compare_and_show([folder], console, by="strategy", against=None, target=None, files=[])
        console.print(f"report: {write_report(folder)}", markup=False, highlight=False, soft_wrap=True)
    console.print(f"results: {folder}", markup=False, highlight=False, soft_wrap=True)
    if outcome.failed:
        raise RunError(
            f"{len(outcome.failed)} of {len(plan.trials)} trials failed. The same command retries them; "
            f"their output is in {folder / 'logs'}"
        )


def compare(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN_OR_STUDY…", help="Run folders and study folders.")
    ],
    by: Annotated[str, typer.Option("--by", help="What to compare: strategy, or a swept key.")] = "strategy",
    against: Annotated[
        str | None, typer.Option("--against", help="The baseline; dropout if not given.")
    ] = None,
    target: Annotated[
        float | None,
        typer.Option("--target", min=0.0, max=1.0, help="Target accuracy that costs are counted up to."),
    ] = None,
    files: Annotated[
        list[Path] | None,
        typer.Option("--out", metavar="FILE", help="Also write .csv, .parquet or .tex; repeatable."),
    ] = None,
) -> None:
    """Compare strategies, paired on seeds and traces, with confidence intervals."""
    from rich.console import Console

    _compare_and_show(folders, Console(), by=by, against=against, target=target, files=files or [])


def _compare_and_show(
    folders: list[Path],
    console: Console,
    *,
    by: str,
    against: str | None,
    target: float | None,
    files: list[Path],
) -> None:
    from fdsim.comparison.compare import Question, compare
    from fdsim.comparison.curves import curves_of
    from fdsim.comparison.output import print_comparison, write_comparison

    found = compare(curves_of(folders), Question(by=by, against=against, target_accuracy=target))
    print_comparison(found, console)
    for file in files:
        write_comparison(found, file)
        typer.echo(f"written: {file}")
