"""What the tests share."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# A shell lets what it starts in the background ignore Ctrl-C, and programs started by the tests would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data sets and traces beside the repository, which most machines do not have."""
    folder = Path(os.environ.get("FDSIM_SHARED", ROOT.parent / "shared"))
    if not (folder / "datasets").is_dir():
        pytest.skip(f"no real data sets and traces at {folder} (set FDSIM_SHARED)")
    return folder


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with little room, where the tests may mount one."""
    place = tmp_path / "small"
    place.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(place)]
    try:
        done = subprocess.run(mounting, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("no mount command here")
    if done.returncode:
        pytest.skip("no right to mount a small disk here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.fixture(autouse=True, scope="session")
def _one_thread_per_worker() -> None:
    """Two workers on two cores: torch threads beyond one each only fight."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        import torch

        torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _programs_can_be_interrupted() -> None:
    """A shell starts what it puts in the background with Ctrl-C ignored, and every program started by a test would too."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass(frozen=True)
class Answer:
    """What a command answered with."""

    exit_code: int
    out: str
    err: str


@pytest.fixture
def fdsim(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Call the command line in this process: `fdsim("run", path)`."""
    from fdsim.cli.app import main

    def call(*words: object) -> Answer:
        monkeypatch.setattr("sys.argv", ["fdsim", *map(str, words)])
        monkeypatch.setenv("COLUMNS", "200")
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        said = capsys.readouterr()
        return Answer(code, said.out, said.err)

    return call
