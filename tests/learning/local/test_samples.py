"""The examples on the accelerator."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import torch

from fdsim.learning.local.samples import Samples

READ_ONLY = """
import numpy as np, torch
from fdsim.learning.local.samples import Samples
inputs, labels = np.zeros((3, 1, 2, 2), dtype=np.uint8), np.arange(3)
inputs.setflags(write=False), labels.setflags(write=False)
Samples(inputs, labels, accelerator=torch.device("cpu"), dtype=torch.float32)
"""


def test_arrays_that_may_only_be_read_are_taken_without_a_warning() -> None:
    """In a process of its own: torch warns of the first such array only. Arrow's labels are some."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", READ_ONLY], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_grey_levels_are_scaled_when_taken() -> None:
    inputs = np.array([0, 51, 255], dtype=np.uint8).reshape(3, 1, 1, 1)
    samples = Samples(inputs, np.arange(3), accelerator=torch.device("cpu"), dtype=torch.float64)
    taken, labels = samples.take(torch.tensor([[2, 0], [1, 1]]))
    torch.testing.assert_close(taken.flatten(), torch.tensor([1.0, -1.0, -0.6, -0.6], dtype=torch.float64))
    assert labels.tolist() == [[2, 0], [1, 1]]
