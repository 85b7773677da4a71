"""`fdsim bench` has both its commands."""

from __future__ import annotations

import json

from typer.testing import CliRunner

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
