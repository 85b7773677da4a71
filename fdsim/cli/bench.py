"""`fdsim bench …`: how fast this machine runs the parts, as ratios measured together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated

import typer

app = typer.Typer(help="Measure speeds on this machine.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Measure speeds on this machine."""


@app.command()
def fleet(
    sizes: Annotated[
        list[int] | None, typer.Option("--devices", help="Fleet sizes to time; by default 1000 and 20000.")
    ] = None,
    workers: Annotated[
        list[int] | None,
        typer.Option(
            "--workers",
            min=1,
            help="Instead time making a trace over so many processes; give it twice to compare.",
        ),
    ] = None,
) -> None:
    """Compare the fleet's events per second with a bare SimPy loop of as many processes."""
    from fdsim.bench.fleet import show_fleet_speed, show_trace_speed

    if workers:
        show_trace_speed(tuple(sizes or (20_000,)), tuple(workers))
    else:
        show_fleet_speed(tuple(sizes or (1_000, 20_000)))


@app.command()
def engine(
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")] = "auto",
    only: Annotated[list[str] | None, typer.Option(help="Workload to time; by default all.")] = None,
    repeats: Annotated[int, typer.Option(help="Repetitions, of which the best counts.", min=1)] = 3,
    plain_frac: Annotated[
        float, typer.Option(help="Fraction of the clients that the plain loop trains.", min=0.05)
    ] = 0.2,
    scaling: Annotated[bool, typer.Option(help="Also time 20 to 500 clients.")] = True,
    memory: Annotated[
        bool, typer.Option(help="Also measure the peak memory of a process that trains one round.")
    ] = False,
    peers: Annotated[
        bool, typer.Option(help="Also time pfl-research and Flower, from the extra 'peers'.")
    ] = False,
    flower_workers: Annotated[int, typer.Option(help="Ray workers for Flower, of one core each.", min=1)] = 2,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead of a table.")
    ] = False,
) -> None:
    """Time rounds of training against a plain PyTorch loop and the machine's own matrix products.

    The plain loop and other simulators get the better of one thread and all threads.
    """
    from rich.console import Console

    from fdsim.bench import engine as bench
    from fdsim.bench.report import EngineReport
    from fdsim.errors import ScenarioError
    from fdsim.learning.config.acceleration import Acceleration

    names = [workload.name for workload in bench.WORKLOADS]
    for name in only or []:
        if name not in names:
            raise ScenarioError("--only", f"no workload called '{name}'", f"there is {', '.join(names)}")
    acceleration = Acceleration(device=device)
    with _steps() as progress:
        progress("matrix products")
        report = EngineReport(bench.Machine.measured(acceleration.accelerators()[0]))
        for workload in bench.WORKLOADS:
            if not only or workload.name in only:
                report.timings.append(
                    bench.time_workload(
                        workload, acceleration, repeats=repeats, plain_frac=plain_frac, progress=progress
                    )
                )
        if memory:
            from fdsim.bench.memory import round_peak_mb

            for i, timing in enumerate(report.timings):
                progress(f"{timing.workload.name}: peak memory")
                peak_mb = round_peak_mb(timing.workload, device, repeats=repeats)
                report.timings[i] = replace(timing, memory_mb=peak_mb)
        if scaling:
            progress("scaling: 20 to 500 clients")
            report.scaling.extend(bench.time_scaling(acceleration, repeats=repeats))
        if peers:
            from fdsim.bench.peers import peer_results

            report.peers.extend(
                peer_results(
                    report.timings,
                    acceleration,
                    rounds=repeats + 1,
                    flower_workers=flower_workers,
                    progress=progress,
                )
            )
    if as_json:
        typer.echo(report.as_json())
    else:
        report.show(Console())


@contextmanager
def _steps() -> Iterator[Callable[[str], None]]:
    """Show on stderr what is being measured: one line that changes on a terminal, a line a step elsewhere."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda step: console.print(step, highlight=False, markup=False, soft_wrap=True)
        return
    with console.status("") as status:
        yield status.update
