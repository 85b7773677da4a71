"""Arguments and options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ScenarioFile = Annotated[Path, typer.Argument(metavar="SCENARIO", help="A scenario file (TOML).")]
RunDir = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key, as in training.batch_size=20."),
]
Device = Annotated[
    str | None,
    typer.Option("--device", help="auto, cpu, cuda, cuda:1 or mps; by default the scenario's."),
]
RayAddress = Annotated[
    str | None,
    typer.Option("--address", help="Ray cluster: auto, HOST:PORT, ray://HOST:PORT, or local."),
]
