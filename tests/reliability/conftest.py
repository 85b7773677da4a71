"""What the reliability tests share: warm processes to break runs in."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Beside this file, so that other processes find the same modules by the same names.
sys.path.insert(0, str(Path(__file__).parent))
from warm_server import Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A process that forks for every job."""
    started = Server()
    yield started
    started.close()


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The same, under which the n-th call that changes the disk can fail."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("a disk that fails takes a C compiler and Linux")
    library = tmp_path_factory.mktemp("library") / "failing_disk.so"
    source = Path(__file__).with_name("failing_disk.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    started = Server(library)
    yield started
    started.close()
