"""`fdsim trace …`: make, import and summarise traces without any learning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fdsim.cli.options import (
    FleetWorkers,
    NoCode,
    Overrides,
    RayAddress,
    ScenarioFile,
    refuse_output,
    trust,
    uses_ray,
)
from fdsim.cli.run import termination_as_interrupt
from fdsim.errors import InputError

app = typer.Typer(help="Make, import and summarise dropout traces.", no_args_is_help=True)


@app.command()
def make(
    scenario: ScenarioFile,
    out: Annotated[Path, typer.Option("--out", metavar="F.parquet", help="Where to write the trace.")],
    sets: Overrides = None,
    reference: Annotated[
        bool,
        typer.Option(
            "--reference", help="Simulate by the reference model (devices/reference.py): slow, same trace."
        ),
    ] = False,
    workers: FleetWorkers = None,
    executor: Annotated[
        str, typer.Option("--executor", help="local, or ray to spread a large fleet over a cluster.")
    ] = "local",
    address: RayAddress = None,
    no_code: NoCode = False,
) -> None:
    """Simulate the fleet only and write its trace."""
    from fdsim.cli.console import PlainConsole
    from fdsim.distributed.fleet import FleetSpread
    from fdsim.pipeline import simulate_trace
    from fdsim.prepare import doubts, prepare
    from fdsim.progress import Terminal
    from fdsim.scenario import load_scenario

    on_cluster = uses_ray(executor, address=address)
    if reference and (on_cluster or workers):
        raise InputError(
            "--reference", "the reference model has one clock", "leave out --workers and --executor"
        )
    refuse_output("--out", out, sources=[scenario], force=True)
    loaded = load_scenario(scenario, sets or [], code=trust(no_code))
    for doubt in doubts(loaded):
        typer.echo(f"warning: {doubt}", err=True)
    fleet = FleetSpread(workers, on_cluster, address)
    with termination_as_interrupt(), Terminal(PlainConsole(), loaded.rounds) as progress:
        trace = simulate_trace(prepare(loaded), out, progress, fleet=fleet, reference=reference)
    typer.echo(f"{out}: {trace.clients} clients, {trace.rounds} rounds, hash {trace.content_hash}")


@app.command("import")
def import_(
    source: Annotated[
        str,
        typer.Argument(metavar="flash|fedscale|csv", help="What the file is: FLASH JSON, FedScale, or CSV."),
    ],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to read.")],
    out: Annotated[Path, typer.Option("--out", metavar="F.parquet", help="Where to write the availability.")],
    silent_screen_s: Annotated[
        float,
        typer.Option(
            "--silent-screen-s",
            min=0,
            help="FLASH: screens count as off in silences of the log longer than this; 0 takes the log as it is.",
        ),
    ] = 0.0,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Turn a measured availability trace into one that fleets can replay."""
    from fdsim.catalogue import nearest
    from fdsim.errors import TraceError
    from fdsim.trace.availability import write_availability
    from fdsim.trace.importers.fedscale import read_fedscale
    from fdsim.trace.importers.flash import read_flash
    from fdsim.trace.importers.interval_csv import read_interval_csv

    readers = {"flash": read_flash, "fedscale": read_fedscale, "csv": read_interval_csv}
    if source not in readers:
        raise TraceError("source", f"no importer called '{source}'" + nearest(source, list(readers)))
    if not file.is_file():
        raise TraceError(str(file), "there is no such file")
    refuse_output("--out", out, sources=[file], force=force)
    devices = (
        read_flash(file, silent_screen_s=silent_screen_s) if source == "flash" else readers[source](file)
    )
    write_availability(out, devices, f"{source} {file.name}")
    days = sum(d.end_s - d.begin_s for d in devices) / 86_400.0
    typer.echo(f"{out}: {len(devices)} devices, {days:.1f} device-days")
    typer.echo(f'replay it with connectivity = {{ kind = "replay", path = "{out}" }} and usage likewise')


@app.command()
def stats(
    file: Annotated[Path, typer.Argument(metavar="F.parquet", help="A trace, or an imported availability.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="STATS.parquet", help="Also write every number here.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Summarise who drops out, when, why and for how long."""
    from fdsim.cli.console import PlainConsole
    from fdsim.trace.stats import show, stats_rows, write_stats

    if out is not None:
        refuse_output("--out", out, sources=[file], force=force)
    rows = stats_rows(file)
    show(rows, PlainConsole())
    if out is not None:
        write_stats(rows, out)
        typer.echo(f"{out}: {len(rows)} numbers (table, key, value)")
