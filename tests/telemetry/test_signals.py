"""SIGINT and SIGTERM stop the real program cleanly; --resume gives the tables of an uninterrupted run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fdsim
from fdsim.inspect.verify import compare_runs
from fdsim.pipeline import run_scenario
from fdsim.scenario import load_scenario

SCENARIO = """
name = "small"
seed = 3
rounds = 160
[data]
kind = "digits"
partition = { kind = "clustered", clusters = 5, labels_per_cluster = 2, samples_per_client = 20 }
[net]
kind = "mlp"
[training]
local_epochs = 1
batch_size = 10
learning_rate = 0.1
[participation]
kind = "fixed_ratio"
alpha = 0.5
clients = 10
[[strategies]]
kind = "fdms"
[[strategies]]
kind = "stale"
[telemetry]
checkpoint_every = 3
similarity_every = 4
"""


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scenario") / "small.toml"
    path.write_text(SCENARIO)
    return path


@pytest.fixture(scope="module")
def reference(scenario: Path) -> Path:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return run_scenario(load_scenario(scenario), scenario.parent / "reference")
    finally:
        torch.set_num_threads(threads)


def command(scenario: Path, out: Path) -> list[str]:
    return [sys.executable, "-m", "fdsim", "run", str(scenario), "--out", str(out)]


ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}


def stopped_by(number: int, scenario: Path, out: Path, wait_s: float) -> subprocess.CompletedProcess[str]:
    """Run the program and send it a signal once the first rounds are on disk."""
    process = subprocess.Popen(
        command(scenario, out), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=ENVIRONMENT
    )
    while process.poll() is None and not list(out.glob("checkpoints/*/*.checkpoint")):
        time.sleep(0.002)
    time.sleep(wait_s)
    process.send_signal(number)
    _, told = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, "", told)


def resumed(scenario: Path, out: Path) -> None:
    subprocess.run([*command(scenario, out), "--resume"], check=True, capture_output=True, env=ENVIRONMENT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_cleanly_and_says_how_to_resume(
    number: int, scenario: Path, reference: Path, tmp_path: Path
) -> None:
    done = stopped_by(number, scenario, tmp_path / "run", 0.01)
    assert done.returncode == 130
    assert "--resume" in done.stderr
    assert "Traceback" not in done.stderr
    run = fdsim.open_run(tmp_path / "run")
    assert run.manifest["status"] == "interrupted"
    assert 3 <= sum(run.progress.values()) < 320
    assert len(pd.read_parquet(tmp_path / "run" / "rounds")) == sum(run.progress.values())
    resumed(scenario, tmp_path / "run")
    assert compare_runs(fdsim.open_run(reference), fdsim.open_run(tmp_path / "run")) is None


@pytest.mark.slow
def test_kills_of_the_real_program_lose_nothing(scenario: Path, reference: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    for trial in range(8):
        out = tmp_path / str(trial)
        done = stopped_by(signal.SIGKILL, scenario, out, float(rng.uniform(0, 0.8)))
        assert done.returncode in (0, -signal.SIGKILL)
        run = fdsim.open_run(out)
        assert run.status in ("interrupted", "complete")
        pd.read_parquet(out / "clients")
        resumed(scenario, out)
        assert compare_runs(fdsim.open_run(reference), run) is None
