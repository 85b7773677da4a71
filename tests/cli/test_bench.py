"""`fdsim bench` has both its commands."""

from __future__ import annotations

from typer.testing import CliRunner

from fdsim.cli.bench import app


def test_the_parts_that_can_be_measured():
    assert {command.callback.__name__ for command in app.registered_commands} == {"fleet", "engine"}


def test_the_engine_is_measured():
    chosen = ["engine", "--only", "digits", "--repeats", "1", "--no-scaling", "--device", "cpu"]
    answer = CliRunner().invoke(app, chosen, env={"COLUMNS": "200"})
    assert answer.exit_code == 0, answer.output
    assert "digits" in answer.output
    assert "GFLOP/s" in answer.output
