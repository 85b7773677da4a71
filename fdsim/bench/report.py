"""What the engine benchmark found, as a table of 80 columns or as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from fdsim.bench.engine import Machine, Scaling, Timing

if TYPE_CHECKING:
    from rich.console import Console

    from fdsim.bench.peers import PeerResult


@dataclass(frozen=True)
class EngineReport:
    """All figures of one run of the benchmark."""

    machine: Machine
    timings: list[Timing] = field(default_factory=list)
    scaling: list[Scaling] = field(default_factory=list)
    peers: list[PeerResult] = field(default_factory=list)

    def as_json(self) -> str:
        """Return everything as one JSON document."""
        return json.dumps(
            {
                "machine": asdict(self.machine) | {"busy": self.machine.busy},
                "workloads": [self._row(timing) for timing in self.timings],
                "scaling": [asdict(row) for row in self.scaling],
                "peers": [asdict(peer) | {"ratio": peer.ratio} for peer in self.peers],
            },
            indent=2,
        )

    def _row(self, timing: Timing) -> dict[str, Any]:
        return {
            "workload": timing.workload.name,
            "plain_s": timing.plain_s,
            "plain_threads": timing.plain_threads,
            "engine_s": timing.engine_s,
            "ratio": timing.ratio,
            "bar": timing.workload.bar,
            "first_s": timing.first_s,
            "gflops": timing.gflops,
            "matrix_frac": timing.gflops / self.machine.matrix_gflops,
            "plan": timing.plan,
            "convolutions": timing.convolutions,
            "memory_mb": timing.memory_mb,
        }

    def show(self, console: Console) -> None:
        """Print the figures, in at most 80 columns."""
        from rich import box
        from rich.table import Table

        machine = self.machine
        kernel = (
            "no convolution kernel"
            if machine.kernel_vector_bits is None
            else f"kernel vectors of {machine.kernel_vector_bits} bits"
        )
        load = "unknown" if machine.load is None else f"{machine.load:.2f}"
        console.print(
            f"{machine.accelerator}, {machine.cores} cores, load {load} before; torch {machine.torch_version}"
            f" ({machine.torch_vectors});\n{kernel}; matrix products at {machine.matrix_gflops:.0f} GFLOP/s",
            highlight=False,
        )
        if machine.busy:
            console.print("The machine was busy: take the figures as rough.", style="yellow")
        measured = any(timing.memory_mb for timing in self.timings)
        # Without lines between columns: with them, 80 columns cut the longest name.
        table = Table(
            title="seconds a round" + ("; MB: peak of a process that trains one" if measured else ""),
            title_justify="left",
            box=box.SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
            collapse_padding=True,
        )
        for column in ("workload", "plain", "threads", "engine", "ratio", "bar", "first", "GFLOP/s", "of mm"):
            table.add_column(column, justify="left" if column == "workload" else "right")
        if measured:
            table.add_column("MB", justify="right")
        for timing in self.timings:
            table.add_row(
                timing.workload.name,
                f"{timing.plain_s:.3f}",
                str(timing.plain_threads),
                f"{timing.engine_s:.3f}",
                f"{timing.ratio:.2f}",
                f"{timing.workload.bar:g}",
                f"{timing.first_s:.2f}",
                f"{timing.gflops:.1f}",
                f"{timing.gflops / machine.matrix_gflops:.0%}",
                *([f"{timing.memory_mb:.0f}"] if timing.memory_mb else []),
            )
        console.print(table)
        for timing in self.timings:
            console.print(
                f"{timing.workload.name}: {timing.plan}, {timing.convolutions} convolutions", highlight=False
            )
        for row in self.scaling:
            console.print(
                f"{row.clients} clients: {row.round_s:.3f} s a round, {row.round_s / row.clients * 1e3:.2f} ms"
                f" a client, {row.memory_mb:.0f} MB at most so far"
            )
        for peer in self.peers:
            # Names of extras stand in brackets, which are not markup.
            console.print(peer.line, markup=False, highlight=False, soft_wrap=True)
