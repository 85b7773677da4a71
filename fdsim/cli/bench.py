"""`fdsim bench …`: how fast this machine runs the parts, as ratios measured together."""

from __future__ import annotations

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
) -> None:
    """Compare the fleet's events per second with a bare SimPy loop of as many processes."""
    from fdsim.bench.fleet import show_fleet_speed

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
    peers: Annotated[
        bool, typer.Option(help="Also time pfl-research and Flower, from the extra 'peers'.")
    ] = False,
    flower_workers: Annotated[int, typer.Option(help="Ray workers for Flower, of one core each.", min=1)] = 2,
) -> None:
    """Time rounds of training against a plain PyTorch loop and the machine's own matrix products."""
    from rich.console import Console
    from rich.table import Table

    from fdsim.bench import engine as bench
    from fdsim.errors import ScenarioError
    from fdsim.learning.config.acceleration import Acceleration

    names = [workload.name for workload in bench.WORKLOADS]
    for name in only or []:
        if name not in names:
            raise ScenarioError("--only", f"no workload called '{name}'", f"there is {', '.join(names)}")
    console, acceleration = Console(), Acceleration(device=device)
    accelerator = acceleration.accelerators()[0]
    matrix = bench.matrix_gflops(accelerator)
    table = Table(
        title=f"a round on {accelerator}; matrix products run at {matrix:.0f} GFLOP/s", title_justify="left"
    )
    for column in (
        "workload",
        "plain s",
        "engine s",
        "ratio",
        "bar",
        "first s",
        "GFLOP/s",
        "of products",
        "plan",
    ):
        table.add_column(column)
    timings = []
    for workload in bench.WORKLOADS:
        if only and workload.name not in only:
            continue
        timing = bench.time_workload(workload, acceleration, repeats=repeats, plain_frac=plain_frac)
        timings.append(timing)
        table.add_row(
            workload.name,
            f"{timing.plain_s:.3f}",
            f"{timing.engine_s:.3f}",
            f"{timing.ratio:.2f}",
            f"{workload.bar:g}",
            f"{timing.first_s:.3f}",
            f"{timing.gflops:.1f}",
            f"{timing.gflops / matrix:.0%}",
            timing.plan,
        )
    console.print(table)
    if scaling:
        for row in bench.time_scaling(acceleration, repeats=repeats):
            per_client_ms = row.round_s / row.clients * 1e3
            console.print(
                f"{row.clients} clients: {row.round_s:.3f} s a round, {per_client_ms:.2f} ms a client,"
                f" {row.memory_mb:.0f} MB at most so far"
            )
    if peers:
        from fdsim.bench.peers import peer_lines

        for line in peer_lines(timings, rounds=repeats + 1, flower_workers=flower_workers):
            # Names of extras stand in brackets, which are not markup.
            console.print(line, markup=False, highlight=False, soft_wrap=True)
