"""The command line: verbs only; whatever is heavy is imported inside the verb that needs it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from fdsim import __version__
from fdsim.cli.bench import app as bench_app
from fdsim.cli.listing import app as list_app
from fdsim.cli.report import report
from fdsim.cli.runs import columns, runs, show, verify
from fdsim.cli.study import compare, study
from fdsim.cli.theory import theory
from fdsim.cli.trace import app as trace_app
from fdsim.errors import FdsimError

app = typer.Typer(
    name="fdsim",
    help="Federated learning on devices that drop out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(trace_app, name="trace")
app.add_typer(list_app, name="list")
app.add_typer(bench_app, name="bench")
list_app.command()(runs)
list_app.command()(columns)
app.command()(verify)
app.command()(show)
app.command()(study)
app.command()(compare)
app.command()(report)
app.command()(theory)

ScenarioFile = Annotated[Path, typer.Argument(metavar="SCENARIO", help="A scenario file (TOML).")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key, as in training.batch_size=20."),
]


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"fdsim {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    """Federated learning on devices that drop out."""


@app.command()
def run(
    scenario: ScenarioFile,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="RUN_DIR", help="Run folder; runs/<name> if not given.")
    ] = None,
    sets: Overrides = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing run.")] = False,
    device: Annotated[
        str | None,
        typer.Option("--device", help="auto, cpu, cuda, cuda:1, mps; the scenario's if not given."),
    ] = None,
    executor: Annotated[
        str, typer.Option("--executor", help="local, or ray to spread every cohort over a cluster.")
    ] = "local",
    address: Annotated[
        str | None, typer.Option("--address", help="Ray cluster: auto, HOST:PORT, ray://HOST:PORT, or local.")
    ] = None,
    shards: Annotated[
        int | None, typer.Option("--shards", min=1, help="With ray: parts of a cohort trained side by side.")
    ] = None,
) -> None:
    """Simulate the fleet, let every strategy learn on its trace, and close with a table."""
    from fdsim.cli.run import run_and_show, sharding_of
    from fdsim.run import RunChoices

    sharding = sharding_of(executor, address, shards)
    run_and_show(scenario, out, sets or [], RunChoices(resume, force, device, sharding=sharding))


@app.command()
def validate(scenario: ScenarioFile, sets: Overrides = None) -> None:
    """Check a scenario file without running anything."""
    from fdsim.prepare import prepare
    from fdsim.scenario import load_scenario

    loaded = load_scenario(scenario, sets or [])
    prepare(loaded)
    labels = ", ".join(strategy.label for strategy in loaded.strategies)
    typer.echo(f"{scenario}: fine. {loaded.clients} clients, {loaded.rounds} rounds, strategies: {labels}")


@app.command()
def explain(
    scenario: ScenarioFile,
    sets: Overrides = None,
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, help="Rounds of the fleet to simulate for the forecast.")
    ] = 20,
) -> None:
    """Say what a scenario will do: dropout, duration and memory, before any training."""
    from fdsim.inspect.explain import explain_scenario

    explain_scenario(scenario, sets or [], rounds)


@app.command()
def schema() -> None:
    """Print the JSON Schema of scenario files, for editors that complete and check TOML."""
    import json

    from fdsim.scenario.schema import scenario_schema

    typer.echo(json.dumps(scenario_schema(), indent=2))


@app.command()
def new(folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to make.")]) -> None:
    """Make a folder with a commented scenario and a device model of your own to start from."""
    from fdsim.cli.new import make_starter

    typer.echo(make_starter(folder))


def main() -> None:
    """Run the command line: 0 done, 1 the run failed, 2 the input was wrong."""
    debug = "--debug" in sys.argv or bool(os.environ.get("FDSIM_DEBUG"))
    # --debug may stand anywhere on the line, as people add it to the end of the command that failed.
    arguments = [word for word in sys.argv[1:] if word != "--debug"]
    try:
        app(args=arguments, standalone_mode=True)
    except FdsimError as error:
        if debug:
            raise
        _tell(str(error))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if debug:
            raise
        _tell(
            f"{type(error).__name__}: {error}. This is a bug, in fdsim or in a model of your own; --debug shows where"
        )
        sys.exit(1)


def _tell(text: str) -> None:
    print(f"error: {text}", file=sys.stderr)
