"""`fdsim study`: many runs, and what they say together."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from fdsim.cli.options import Device, NoCode, RayAddress, trust


def study(
    file: Annotated[Path, typer.Argument(metavar="STUDY", help="A study file (TOML).")],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="STUDY_DIR", help="Study folder; by default studies/<name>."),
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Override a key of the base, or of the study: study.seeds=3."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop.")] = False,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Trials at a time; by default as many as fit.")
    ] = None,
    executor: Annotated[
        str, typer.Option("--executor", help="local (processes here) or ray (a cluster).")
    ] = "local",
    address: RayAddress = None,
    results: Annotated[
        str | None,
        typer.Option(
            "--results", help="With ray: shared folder (shared), back here (ship), or a URL: s3://…"
        ),
    ] = None,
    device: Device = None,
    no_code: NoCode = False,
) -> None:
    """Plan and run a study, or resume it, and print the comparison."""
    from fdsim.catalogue import own_code
    from fdsim.cli.compare import compare_and_show
    from fdsim.cli.console import PlainConsole
    from fdsim.cli.run import termination_as_interrupt
    from fdsim.errors import RunError, StrategyFailureError
    from fdsim.report import write_report
    from fdsim.studies.launch import StudyChoices, default_folder, default_workers, run_plan
    from fdsim.studies.plan import plan_study
    from fdsim.studies.preview import print_plan
    from fdsim.studies.progress import StudyTerminal
    from fdsim.studies.study_file import load_study

    console = PlainConsole()
    with own_code(trust(no_code)):
        plan = plan_study(load_study(file, sets or []))
    for doubt in plan.doubts():
        typer.echo(f"warning: {doubt}", err=True)
    folder = out or default_folder(plan)
    if dry_run:
        print_plan(plan, folder, console, workers=workers or default_workers(plan))
        return
    print_plan(plan, folder, console)
    choices = StudyChoices(executor, workers, address, results, device)
    try:
        with termination_as_interrupt(), StudyTerminal(console) as progress:
            outcome = run_plan(plan, folder, choices, progress=progress)
    except KeyboardInterrupt:
        print(
            f"Interrupted. The same command resumes it: {shlex.join(['fdsim', *sys.argv[1:]])}",
            file=sys.stderr,
        )
        raise
    if outcome.complete:
        compare_and_show([folder], console, by="strategy", against=None, target=None, files=[])
        console.print(f"report: {write_report(folder)}", markup=False, highlight=False, soft_wrap=True)
    console.print(f"results: {folder}", markup=False, highlight=False, soft_wrap=True)
    if outcome.failed:
        raise RunError(
            f"{len(outcome.failed)} of {len(plan.trials)} trials failed. The same command tries them again; "
            f"the output of their processes is in {folder / 'logs'}"
        )
    if outcome.with_failures:
        told = "; ".join(
            f"{trial.label}: {label}: {reason}"
            for trial, failed in outcome.with_failures
            for label, reason in failed.items()
        )
        raise StrategyFailureError(
            f"{folder}: strategies failed in {len(outcome.with_failures)} of {len(plan.trials)} trials. {told}"
        )
