"""A replayed log that is shorter than the run is repeated, and every verb says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fdsim import open_run
from fdsim.trace.availability import observe, write_availability

QUICKSTART = Path(__file__).resolve().parents[2] / "scenarios/quickstart.toml"
SHORT = ("--set", "rounds=3", "--set", "strategies=['dropout']", "--set", "telemetry={}")


def test_logs_that_are_shorter_than_the_run_are_told_by_every_verb(
    tmp_path: Path, fdsim: Callable[..., Any]
) -> None:
    """Ten phones replay two logs: one of a day and one of ten; three rounds a day apart take three days."""
    log, out = tmp_path / "log.parquet", tmp_path / "run"
    on = np.array([[0.0, 80_000.0]])
    states = {"idle": on, "charging": on, "wifi": on}
    days = {"short": 1.0, "long": 10.0}
    write_availability(
        log, [observe(name, (0.0, 86_400.0 * d), states, name) for name, d in days.items()], "test"
    )
    replay = f'{{kind="replay", path="{log}"}}'
    fleet = f'fleet=[{{profile="midrange_phone", count=10, connectivity={replay}, usage={replay}}}]'
    words = (QUICKSTART, *SHORT, "--set", fleet, "--set", "server.round_interval_s=86400")
    said = (
        f"warning: {log}: 1 of 2 replayed logs are shorter than the run, which ends 3.8 days after midnight"
    )
    answer = fdsim("run", *words, "--out", out)
    assert answer.exit_code == 0, answer.err
    assert answer.err.count(said) == 1
    assert [said in f"warning: {each}" for each in open_run(out).manifest["warnings"]] == [True]
    assert said in fdsim("show", out).out
    assert said in fdsim("validate", *words).err
    assert said in fdsim("explain", *words, "--rounds", 1).out
    assert said in fdsim("trace", "make", *words, "--out", tmp_path / "trace.parquet").err
    study = tmp_path / "study.toml"
    study.write_text(
        f'[study]\nbase = "{QUICKSTART}"\nseeds = 2\n[study.grid]\n"server.round_interval_s" = [3600, 86400]\n'
    )
    asked = (study, *SHORT, "--set", fleet)
    for verb, *options in (("validate",), ("study", "--dry-run", "--workers", 1)):
        answer = fdsim(verb, *asked, *options)
        assert answer.exit_code == 0, answer.err
        assert answer.err.count(said) == 1
        assert "(in trial round_interval_s=86400 seed=1)" in answer.err
    enough = fdsim("validate", *words, "--set", "server.round_interval_s=3600")
    assert "warning" not in enough.err
