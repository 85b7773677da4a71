"""The paper's scenarios with data at hand: torchvision folders, or Parquet files in place of CIFAR-10's download."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from fdsim.pipeline import run_scenario
from fdsim.scenario import load_scenario

ROOT = Path(__file__).resolve().parents[2]
PAPER = ROOT / "scenarios/paper"


def test_parquet_files_in_place_of_the_download_keep_the_partition() -> None:
    sets = ["data.kind=parquet", "data.train=train.parquet", "data.test=test.parquet"]
    for name in ("cifar10_clustered.toml", "cifar10_general.toml"):
        plain, parquet = load_scenario(PAPER / name), load_scenario(PAPER / name, sets)
        assert parquet.data.kind == "parquet"
        assert parquet.data.partition == plain.data.partition


def test_mnist_at_hand_runs(shared: Path, tmp_path: Path) -> None:
    sets = [
        f"data.root={shared / 'datasets'}",
        "data.download=false",
        "rounds=3",
        'strategies=[{kind="fdms"}]',
    ]
    folder = run_scenario(load_scenario(PAPER / "mnist_clustered.toml", sets), tmp_path / "run")
    rounds = pd.read_parquet(folder / "rounds")
    assert rounds["clients_active"].tolist() == [20, 10, 10]
    # Two epochs at a time, three rounds teach much more than chance.
    assert rounds["test_accuracy"].iloc[-1] > 0.3
