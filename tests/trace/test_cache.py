"""A trace is simulated once, however many want it and however rudely makers die."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from fdsim.trace import open_trace, plain_round, write_trace
from fdsim.trace.cache import TraceCache


def _write(path: Path, key: str = "k") -> None:
    write_trace(path, [plain_round(0, np.array([True, False]), 60.0)], made_by=key)


def test_the_second_one_to_ask_gets_the_first_ones_trace(tmp_path: Path) -> None:
    made: list[Path] = []

    def make(path: Path) -> None:
        made.append(path)
        _write(path)

    cache = TraceCache(tmp_path / "traces")
    cache.fetch("k", tmp_path / "a.parquet", make)
    cache.fetch("k", tmp_path / "b.parquet", make)
    cache.fetch("k", tmp_path / "b.parquet", make)
    assert made == [tmp_path / "traces" / "k.parquet"]
    assert open_trace(tmp_path / "a.parquet").content_hash == open_trace(tmp_path / "b.parquet").content_hash
    assert sorted(path.name for path in tmp_path.glob("*.parquet")) == ["a.parquet", "b.parquet"]


def test_those_who_come_while_it_is_made_wait(tmp_path: Path) -> None:
    cache, made = TraceCache(tmp_path / "traces"), []

    def make(path: Path) -> None:
        made.append(path)
        time.sleep(0.2)
        _write(path)

    threads = [
        threading.Thread(target=cache.fetch, args=("k", tmp_path / f"{i}.parquet", make)) for i in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert all((tmp_path / f"{i}.parquet").exists() for i in range(4))


@pytest.mark.parametrize("content", [b"", b"not parquet"])
def test_a_damaged_trace_is_made_again(tmp_path: Path, content: bytes) -> None:
    cache = TraceCache(tmp_path)
    cache.path_of("k").write_bytes(content)
    cache.fetch("k", tmp_path / "a.parquet", _write)
    assert open_trace(tmp_path / "a.parquet").made_by == "k"


def test_a_trace_of_something_else_under_this_name_is_not_believed(tmp_path: Path) -> None:
    cache = TraceCache(tmp_path)
    _write(cache.path_of("k"), key="other")
    cache.fetch("k", tmp_path / "a.parquet", _write)
    assert open_trace(tmp_path / "a.parquet").made_by == "k"
