"""`fdsim bench` has both its commands."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from fdsim.bench.engine import WORKLOADS, Machine, Timing
from fdsim.bench.memory import peak_mb
from fdsim.bench.report import EngineReport
from fdsim.cli.bench import app


def test_the_parts_that_can_be_measured():
    assert {command.callback.__name__ for command in app.registered_commands} == {"fleet", "engine"}


CHOSEN = ["engine", "--only", "digits", "--repeats", "1", "--no-scaling", "--device", "cpu"]


def test_the_engine_is_measured():
    answer = CliRunner().invoke(app, CHOSEN, env={"COLUMNS": "80"})
    assert answer.exit_code == 0, answer.output
    assert "digits" in answer.stdout
    assert "GFLOP/s" in answer.stdout
    assert "cores, load" in answer.stdout
    assert "digits: stacked" in answer.stdout
    assert max(map(len, answer.stdout.splitlines())) <= 80
    assert "…" not in answer.stdout


def test_the_longest_names_and_figures_fit_80_columns():
    timings = [
        Timing(
            replace(workload, bar=10.25),
            plain_s=123.456,
            plain_threads=16,
            threads=(16,),
            engine_s=12.345,
            first_s=23.45,
            gflops=1234.5,
            plan="stacked, stacks of 100, 16 workers",
            convolutions="kernel",
            memory_mb=12345.0,
        )
        for workload in WORKLOADS
    ]
    machine = Machine("cuda:0", 128, 123.45, "2.15.0+cu132", "AVX512", 512, 12345.0)
    console = Console(width=80, file=io.StringIO())
    EngineReport(machine, timings).show(console)
    told = console.file.getvalue()
    assert max(map(len, told.splitlines())) <= 80
    assert "…" not in told
    (row,) = (line.split() for line in told.splitlines() if line.split()[:1] == ["depthwise"])
    assert row[1:] == ["123.456", "16", "12.345", "10.00", "10.25", "23.45", "1234.5", "10%", "12345"]


def test_peak_memory_is_that_of_a_process_of_its_own():
    """The process that measures has 300 MB more, which the other one does not count."""
    ballast = b"x" * 300_000_000
    ours_mb = peak_mb()
    del ballast
    if ours_mb is None:
        pytest.skip("the system does not tell")
    answer = CliRunner().invoke(app, [*CHOSEN, "--memory", "--json"])
    assert answer.exit_code == 0, answer.output
    assert "digits: peak memory" in answer.stderr
    (row,) = json.loads(answer.stdout)["workloads"]
    assert 50 < row["memory_mb"] < ours_mb - 200


def test_progress_is_shown_while_measuring():
    answer = CliRunner().invoke(app, CHOSEN, env={"COLUMNS": "80"})
    said = answer.stderr.splitlines()
    assert said[:2] == ["matrix products", "digits: first round"]
    assert "digits: plain loop, threads: 1, 1 of 1" in said
    assert said[-1] == "digits: engine, 1 of 1"


def test_the_figures_as_json():
    answer = CliRunner().invoke(app, [*CHOSEN, "--json"])
    assert answer.exit_code == 0, answer.output
    told = json.loads(answer.stdout)
    (row,) = told["workloads"]
    assert row["workload"] == "digits"
    assert row["ratio"] == row["plain_s"] / row["engine_s"]
    assert row["convolutions"] == "torch"
    assert told["machine"]["matrix_gflops"] > 0
    assert {"load", "torch_vectors", "kernel_vector_bits", "busy"} <= told["machine"].keys()
