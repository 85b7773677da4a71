"""`fdsim trace make`: over several processes, and what cannot be combined."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

QUICKSTART = "scenarios/quickstart.toml"


def test_two_workers_make_the_same_file(fdsim: Callable[..., Any], tmp_path: Path) -> None:
    one, two = tmp_path / "one.parquet", tmp_path / "two.parquet"
    fdsim("trace", "make", QUICKSTART, "--set", "rounds=3", "--out", str(one), "--workers", "1")
    fdsim("trace", "make", QUICKSTART, "--set", "rounds=3", "--out", str(two), "--workers", "2")
    assert two.read_bytes() == one.read_bytes()


def test_devices_that_share_are_told_of(fdsim: Callable[..., Any], tmp_path: Path) -> None:
    shared = 'server.selection = { kind = "all", pool = "eligible" }'
    words = ("--set", "rounds=2", "--set", shared, "--workers", "2", "--out", str(tmp_path / "t.parquet"))
    assert "in one process" in fdsim("trace", "make", QUICKSTART, *words).out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--reference", "--workers", "2"), "the reference model has one clock"),
        (("--address", "auto"), "--address: is for a Ray cluster. add --executor ray"),
        (("--executor", "slurm"), "no executor called 'slurm'"),
    ],
)
def test_what_cannot_be_combined(
    fdsim: Callable[..., Any], tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    answer = fdsim("trace", "make", QUICKSTART, "--out", str(tmp_path / "t.parquet"), *words)
    assert answer.exit_code == 2
    assert said in answer.err
