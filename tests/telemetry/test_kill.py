"""kill -9 at any moment loses nothing: files open, checkpoints hold, and resuming gives the same tables."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from fdsim.telemetry import checkpoint
from fdsim.telemetry.lock import writer_of

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no kill -9 and no fork server")

RUN = {"rounds": 9, "clients": 5, "every": 2}


def _die_at_step(step: int, folder: Path, **settings: Any) -> None:
    """Run in a process of its own and kill it just before the n-th call that changes the disk."""
    import fake_run

    left = [step]

    def counted(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*args, **kwargs)

        return call

    for name in ("replace", "fsync", "unlink", "mkdir"):
        setattr(os, name, counted(getattr(os, name)))
    Path.replace = counted(Path.replace)  # type: ignore[method-assign]
    Path.unlink = counted(Path.unlink)  # type: ignore[method-assign]
    fake_run.fake_run(folder, **settings)


def _die_in_write(number: int, folder: Path, **settings: Any) -> None:
    """Run in a process of its own and kill it half way through the n-th file it writes as a whole."""
    import fake_run

    left, original = [number], Path.write_bytes

    def half(self: Path, content: bytes) -> int:
        left[0] -= 1
        if left[0] == 0:
            original(self, content[: len(content) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return original(self, content)

    Path.write_bytes = half  # type: ignore[method-assign,assignment]
    fake_run.fake_run(folder, **settings)


@pytest.fixture(scope="module")
def start(fake: ModuleType) -> Callable[..., Any]:
    """Start a function in a fresh process that has its imports behind it already."""
    context = multiprocessing.get_context("forkserver")
    # Python 3.11's fork server looks for what it preloads only where the environment says.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        context.set_forkserver_preload(["fake_run"])
        process = context.Process(target=time.monotonic)
        process.start()
        process.join()

    def begin(target: Callable[..., None], *args: Any, **kwargs: Any) -> Any:
        process = context.Process(target=target, args=args, kwargs=kwargs)
        process.start()
        return process

    return begin


@pytest.fixture(scope="module")
def reference(fake: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reference") / "run"
    fake.fake_run(folder, **RUN)
    return folder


def _promised(folder: Path) -> int:
    """Count the rounds that checkpoints on disk have promised to keep."""
    found = [checkpoint.last_good(place) for place in (folder / "checkpoints").glob("*")]
    return sum(point.next_round for point in found if point is not None)


def _kill_again_and_again(
    kills: int,
    folder: Path,
    start: Callable[..., Any],
    fake: ModuleType,
    reference: Path,
    checks: Any,
    whole_s: float,
) -> None:
    """Kills a run at seeded random times, checks what is on disk, resumes; begins anew whenever one is complete."""
    rng = np.random.default_rng(7)
    done, attempt = 0, 0
    while done < kills:
        run = folder / str(attempt)
        fresh = not run.exists()
        process = start(fake.fake_run, run, resume=True, pause_s=0.001, **RUN)
        began_s = time.monotonic()
        process.join(float(rng.uniform(0, whole_s)))
        process.kill()
        process.join()
        done += process.exitcode == -signal.SIGKILL
        assert process.exitcode in (0, -signal.SIGKILL)
        if not run.exists():
            continue
        assert writer_of(run) is None
        rounds = checks.readable(run, reference)
        assert rounds >= _promised(run)
        if process.exitcode == 0:
            if fresh:
                # A whole run took less than was thought; a resumed one says nothing of how long a whole one takes.
                whole_s = min(whole_s, time.monotonic() - began_s)
            checks.same(run, reference)
            attempt += 1
    fake.fake_run(folder / str(attempt), resume=True, **RUN)
    checks.same(folder / str(attempt), reference)


def _whole_run_s(start: Callable[..., Any], fake: ModuleType, folder: Path) -> float:
    began_s = time.monotonic()
    process = start(fake.fake_run, folder, pause_s=0.001, **RUN)
    process.join()
    assert process.exitcode == 0
    return time.monotonic() - began_s


def test_kills_at_random_moments(
    tmp_path: Path, start: Callable[..., Any], fake: ModuleType, reference: Path, checks: Any
) -> None:
    whole_s = _whole_run_s(start, fake, tmp_path / "timed")
    _kill_again_and_again(5, tmp_path, start, fake, reference, checks, whole_s)


@pytest.mark.slow
def test_fifty_kills_at_random_moments(
    tmp_path: Path, start: Callable[..., Any], fake: ModuleType, reference: Path, checks: Any
) -> None:
    whole_s = _whole_run_s(start, fake, tmp_path / "timed")
    _kill_again_and_again(50, tmp_path, start, fake, reference, checks, whole_s)


def _killed_before_step(
    step: int, folder: Path, start: Callable[..., Any], fake: ModuleType, reference: Path, checks: Any
) -> bool:
    """Kills a run before its n-th change of the disk and resumes it; answers whether it got that far."""
    process = start(_die_at_step, step, folder, **RUN)
    process.join()
    if process.exitcode == 0:
        return False
    assert process.exitcode == -signal.SIGKILL
    if folder.exists():
        rounds = checks.readable(folder, reference)
        assert rounds >= _promised(folder)
    fake.fake_run(folder, resume=True, **RUN)
    checks.same(folder, reference)
    return True


@pytest.mark.parametrize("step", [3, 17, 48, 77, 130])
def test_a_kill_just_before_a_change_of_the_disk(
    step: int, tmp_path: Path, start: Callable[..., Any], fake: ModuleType, reference: Path, checks: Any
) -> None:
    assert _killed_before_step(step, tmp_path / "run", start, fake, reference, checks)


@pytest.mark.parametrize("number", [2, 3, 9, 12])
def test_a_kill_half_way_through_a_file_leaves_no_parquet_file_that_cannot_be_read(
    number: int, tmp_path: Path, start: Callable[..., Any], fake: ModuleType, reference: Path, checks: Any
) -> None:
    process = start(_die_in_write, number, tmp_path / "run", **RUN)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    checks.readable(tmp_path / "run", reference)
    fake.fake_run(tmp_path / "run", resume=True, **RUN)
    checks.same(tmp_path / "run", reference)


@pytest.mark.slow
def test_a_kill_before_every_change_of_the_disk(
    tmp_path: Path, start: Callable[..., Any], fake: ModuleType, reference: Path, checks: Any
) -> None:
    step = 1
    while _killed_before_step(step, tmp_path / str(step), start, fake, reference, checks):
        step += 1
    assert step > 150
