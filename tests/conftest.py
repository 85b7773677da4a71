"""What the tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data sets and traces beside the repository, which most machines do not have."""
    folder = Path(os.environ.get("FDSIM_SHARED", ROOT.parent / "shared"))
    if not (folder / "datasets").is_dir():
        pytest.skip(f"no real data sets and traces at {folder} (set FDSIM_SHARED)")
    return folder


@pytest.fixture(autouse=True, scope="session")
def _one_thread_per_worker() -> None:
    """Two workers on two cores: torch threads beyond one each only fight."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        import torch

        torch.set_num_threads(1)
