"""A small sample of the kills and faults that `-m reliability` has hundreds of."""

from __future__ import annotations

import errno
from pathlib import Path

from test_failing_disk import fail_at
from test_kills import killed_runs
from warm_server import Server

SHORT = {"rounds": 2, "checkpoints": 1}


def test_a_few_kills_and_calls_that_fail(failing: Server, tmp_path: Path) -> None:
    told = failing.do("run", tmp_path / "reference-0", options=SHORT)
    assert told["code"] == 0, told["said"]
    killed_runs(2, tmp_path, failing, SHORT)
    for number, (error, stays) in enumerate([(errno.ENOSPC, True), (errno.EIO, False)], start=1):
        at = number * int(told["calls"]) // 3
        fail_at(at, error, stays, tmp_path / "run", failing, tmp_path / "reference-0", options=SHORT)
