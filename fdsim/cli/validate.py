"""`fdsim validate`: check a scenario or study file without running it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import typer

from fdsim.cli.options import NoCode, Overrides, ScenarioFile, trust


def validate(scenario: ScenarioFile, sets: Overrides = None, no_code: NoCode = False) -> None:
    """Check a scenario file, or every trial of a study file, without running anything."""
    if _is_study(scenario):
        from fdsim.catalogue import own_code
        from fdsim.studies.plan import plan_study
        from fdsim.studies.study_file import load_study

        with own_code(trust(no_code)):
            plan = plan_study(load_study(scenario, sets or []), to_check=True)
        for doubt in plan.doubts():
            typer.echo(f"warning: {doubt}", err=True)
        typer.echo(
            f"{scenario}: valid. {len(plan.trials)} trials; `fdsim study {scenario} --dry-run` shows them"
        )
        return
    from fdsim.data.memory import machine_bytes
    from fdsim.prepare import check, divide_to_check, doubts, prepare
    from fdsim.scenario import load_scenario

    loaded = load_scenario(scenario, sets or [], code=trust(no_code))
    check(prepare(loaded, divide_to_check), machine_bytes())
    for doubt in doubts(loaded):
        typer.echo(f"warning: {doubt}", err=True)
    labels = ", ".join(strategy.label for strategy in loaded.strategies)
    typer.echo(f"{scenario}: valid. {loaded.clients} clients, {loaded.rounds} rounds, strategies: {labels}")


def _is_study(path: Path) -> bool:
    """Whether the file itself has a [study] table; a file that cannot be read is left to the reader's message."""
    try:
        return "study" in tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
