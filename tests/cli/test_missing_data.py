"""`fdsim validate` where the data are not there yet: it says so, downloads nothing, and checks what it can."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

PAPER = Path(__file__).parents[2] / "scenarios" / "paper"


@pytest.mark.parametrize("file", ["cifar10_clustered.toml", "cifar10_k40.study.toml"])
def test_that_data_will_be_downloaded_is_told_and_not_done(fdsim: Any, tmp_path: Path, file: str) -> None:
    folder = tmp_path / "none"
    answer = fdsim("validate", PAPER / file, "--set", f"data.root={folder}")
    assert answer.exit_code == 0
    assert "valid" in answer.out
    assert answer.err.count("warning:") == 1
    assert f"CIFAR10 is not in '{folder}/cifar-10-batches-py'" in answer.err
    assert "downloaded (170 MB)" in answer.err
    assert not folder.exists()


@pytest.mark.parametrize("file", ["cifar10_clustered.toml", "cifar10_k40.study.toml"])
def test_what_is_wrong_is_found_before_the_download(fdsim: Any, tmp_path: Path, file: str) -> None:
    sets = ["--set", f"data.root={tmp_path}", "--set", "data.partition.samples_per_client=2600"]
    answer = fdsim("validate", PAPER / file, *sets)
    assert answer.exit_code == 2
    assert "are more than the 10000 that cluster 0 has" in answer.err


def test_without_leave_to_download_missing_data_are_an_error(fdsim: Any, tmp_path: Path) -> None:
    sets = ["--set", f"data.root={tmp_path}", "--set", "data.download=false"]
    answer = fdsim("validate", PAPER / "mnist_k40.study.toml", *sets)
    assert answer.exit_code == 2
    assert "put its files there, point root at the folder above them, or set download = true" in answer.err
