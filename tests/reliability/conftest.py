"""What the reliability tests share: a warm process to break runs in."""

from __future__ import annotations

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
