"""A small run, and a small folder of runs in the manner of the paper, which the analysis tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from fdsim.pipeline import run_scenario
from fdsim.scenario import load_scenario

ROOT = Path(__file__).resolve().parents[2]
SMALL = [
    "rounds=6",
    "data.partition.samples_per_client=10",
    "training.local_epochs=1",
    "telemetry.similarity_every=3",
]


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The quickstart, six rounds of it."""
    folder = tmp_path_factory.mktemp("analysis") / "run"
    scenario = load_scenario(ROOT / "scenarios/quickstart.toml", SMALL)
    return run_scenario(scenario, folder)


@pytest.fixture(scope="session")
def small_paper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The paper's clustered setting on small digits: two α, two seeds, Full only once per seed; E, K, μ, CR and shards."""
    folder = tmp_path_factory.mktemp("paper")
    base = ROOT / "tests/analysis/small_paper.toml"
    without_full = 'strategies=[{kind="fdms"},{kind="dropout"}]'
    reduced = 'strategies=[{kind="fdms",name="fdms, case 2",reduction={scale=0.5}}]'
    trials: dict[str, list[str]] = {
        "a5s1": ["seed=1"],
        "a5s2": ["seed=2"],
        "a7s1": ["seed=1", "participation.alpha=0.7", without_full],
        "a7s2": ["seed=2", "participation.alpha=0.7", without_full],
        "released": ["name=paper-mnist-released"],
        "e5": ["training.local_steps=5"],
        "k40": ["participation.clients=40"],
        "mu": ["training.proximal_mu=0.2"],
        "cr": [reduced],
        "general": [
            "name=paper-cifar10-general",
            'data.partition={kind="shards",partitions=100,per_client=1}',
        ],
    }
    for name, overrides in trials.items():
        run_scenario(load_scenario(base, overrides), folder / name)
    return folder
