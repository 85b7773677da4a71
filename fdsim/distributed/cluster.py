"""Other processes: what they need on this machine, and how a Ray cluster is reached; Ray is imported only there."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any

import fdsim
from fdsim.errors import InputError

#: How long an address may take to answer before the connection fails.
_ANSWER_S = 3.0
_PORTS = {"": 6379, "ray": 10001}
#: Where the package itself is, should no entry of the path lead there.
_FDSIM_IN = Path(fdsim.__file__).resolve().parent.parent
_REMEDY = "start one with `ray start --head`, or use --address local for one on this machine"


def usable_cores() -> int:
    """Return the cores this process may use: containers and job schedulers allow fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def worker_environment(*, threads: int) -> dict[str, str]:
    """Return the environment of a process on this machine that works with so many threads.

    It imports what this process can, fdsim included, however it came to be on the path.
    """
    paths = [*(path or os.getcwd() for path in sys.path), str(_FDSIM_IN)]
    return {
        **os.environ,
        **dict.fromkeys(_THREAD_VARIABLES, str(threads)),
        "PYTHONPATH": os.pathsep.join(paths),
    }


def first_line(error: Exception) -> str:
    """Return the first line of an error's message; Ray's fill pages."""
    return str(error).strip().split("\n")[0]


def connect(address: str | None) -> bool:
    """Connect to a cluster, and return whether this call did so; an address that does not answer fails fast."""
    try:
        import ray
    except ImportError:
        raise InputError("--executor ray", "Ray is not installed", "pip install 'fdsim[ray]'") from None
    if ray.is_initialized():
        return False
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    paths = [str(_FDSIM_IN), os.environ.get("PYTHONPATH", "")]
    about: dict[str, Any] = {
        "log_to_driver": False,
        "logging_level": "ERROR",
        # Workers find this very fdsim, where the machine has it at the same place.
        "runtime_env": {"env_vars": {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}},
    }
    if address == "local":
        ray.init(address="local", num_cpus=usable_cores(), include_dashboard=False, **about)
        return True
    _require_answer(address)
    try:
        ray.init(address=address, **about)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise InputError(
            f"--address {address}", f"no Ray cluster there ({first_line(error)})", _REMEDY
        ) from None
    return True


def _require_answer(address: str) -> None:
    """Try the cluster's port first: Ray itself would keep trying for minutes."""
    place = address
    if address == "auto":
        folder = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "ray_current_cluster"
        if not folder.exists():
            return  # Ray knows of no cluster on this machine and says so at once.
        place = folder.read_text(encoding="utf-8").strip()
    scheme, _, rest = place.rpartition("://")
    host, _, port = rest.partition(":")
    if port and not port.isdigit():
        raise InputError(f"--address {address}", f"'{port}' is not a port", "as in 10.0.0.1:6379")
    number = int(port) if port else _PORTS.get(scheme, 6379)
    try:
        socket.create_connection((host, number), timeout=_ANSWER_S).close()
    except OSError as error:
        problem = f"no answer from {host}, port {number} ({error.strerror or error})"
        raise InputError(f"--address {address}", problem, _REMEDY) from None
