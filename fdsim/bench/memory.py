"""Peak memory of training a round, each time in a fresh process: what was there before does not count."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from fdsim.bench.engine import WORKLOADS, EngineWorkload, engine_for, one_round
from fdsim.learning.config.acceleration import Acceleration

_STATUS = Path("/proc/self/status")


def round_peak_mb(workload: EngineWorkload, device: str, *, repeats: int) -> float | None:
    """Return the least of several processes' peak memory, MB; None where the system does not tell.

    What a process takes at most depends on which of its threads frees first, so that it varies by a few per cent.
    """
    peaks = [_in_a_process(workload.name, device) for _ in range(repeats)]
    return min((peak for peak in peaks if peak is not None), default=None)


def _in_a_process(name: str, device: str) -> float | None:
    here = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*filter(None, sys.path), here])}
    command = [sys.executable, "-P", "-m", __name__, name, device]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    return float(told) if told.strip() else None


def peak_mb() -> float | None:
    """Return the most memory that this process has had since its program was started, MB.

    Not by `getrusage`, which counts what the process that started this one had at that time.
    """
    if not _STATUS.exists():
        return None
    lines = _STATUS.read_text(encoding="ascii").splitlines()
    return next((int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmHWM:")), None)


def _main(name: str, device: str) -> None:
    workload = next(each for each in WORKLOADS if each.name == name)
    one_round(engine_for(workload, Acceleration(device=device)), workload.clients)
    print(peak_mb() or "")


if __name__ == "__main__":
    _main(*sys.argv[1:])
