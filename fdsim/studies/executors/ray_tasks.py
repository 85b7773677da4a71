"""The tasks on the machines of a Ray cluster: make a trace, run a trial, deliver its results.

Only plain values, NumPy arrays and bytes travel; the large ones through Ray's object store.
"""

from __future__ import annotations

import dataclasses
import getpass
import os
import shutil
import socket
import tempfile
import time
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fdsim.catalogue import import_also_from
from fdsim.data.in_memory import holding
from fdsim.errors import FdsimError, InputError
from fdsim.files import write_whole
from fdsim.studies.results import RemoteFolder, pack, pack_small, unpack
from fdsim.studies.trial import TrialJob, run_trial
from fdsim.studies.worker_use import peak_mb
from fdsim.trace.cache import TraceCache

if TYPE_CHECKING:
    from fdsim.data.datasets import Examples
    from fdsim.scenario import Scenario


@dataclass(frozen=True)
class Delivery:
    """How a trial's results are delivered: "shared", "ship", or a URL; and where machines keep unfinished trials."""

    results: str
    study: str
    """Names the study among the unfinished trials of this user on a machine."""

    @property
    def scratch(self) -> Path:
        """Where a machine keeps unfinished trials, so that another process can resume after one that died."""
        return Path(tempfile.gettempdir()) / f"fdsim-{getpass.getuser()}" / self.study


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial's task."""

    where: str
    node: str
    wall_s: float = 0.0
    peak_mb: float | None = None
    packed: bytes | None = None
    error: str | None = None
    again: bool = True


def make_trace_bytes(job: TrialJob, examples: Examples) -> bytes:
    """Simulate the trace of a trial and return its file."""
    from fdsim.distributed.fleet import FleetSpread
    from fdsim.pipeline import simulate_trace
    from fdsim.prepare import prepare
    from fdsim.telemetry.callback import Callback

    prepared = prepare(_scenario(job, examples))
    with tempfile.TemporaryDirectory(prefix="fdsim-trace-") as folder:
        path = Path(folder) / "trace.parquet"
        simulate_trace(prepared, path, Callback(), fleet=FleetSpread(job.threads))
        return path.read_bytes()


def run_and_deliver(
    job: TrialJob,
    delivery: Delivery,
    examples: Examples,
    trace: tuple[str, bytes] | None,
    begun: bytes | None,
) -> TrialResult:
    """Run a trial, or what is left of it, and deliver its folder. Exceptions become results, not crashes."""
    import ray

    where = f"{socket.gethostname()}, process {os.getpid()}"
    node = ray.get_runtime_context().get_node_id()
    began_s = time.perf_counter()
    local = job
    if delivery.results != "shared":
        scratch = delivery.scratch
        local = dataclasses.replace(job, folder=str(scratch / job.trial), traces=str(scratch / "traces"))
    folder = Path(local.folder)
    try:
        if begun is not None and not (folder / "run.json").exists():
            unpack(begun, folder)
        if trace is not None:
            _keep_trace(Path(local.traces), *trace)
        with warnings.catch_warnings():
            # Arrays in the object store are read-only, and torch only ever reads them.
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            run_trial(local, scenario=_scenario(local, examples))
        packed = _deliver(folder, job.trial, delivery)
    except FdsimError as error:
        again = not isinstance(error, InputError)
        return TrialResult(where, node, error=str(error), again=again, packed=_unfinished(folder, delivery))
    except Exception as error:
        traceback.print_exc()
        told = f"{type(error).__name__}: {error}"
        return TrialResult(where, node, error=told, packed=_unfinished(folder, delivery))
    if delivery.results != "shared":
        shutil.rmtree(folder, ignore_errors=True)
    return TrialResult(where, node, wall_s=time.perf_counter() - began_s, peak_mb=peak_mb(), packed=packed)


def _scenario(job: TrialJob, examples: Examples) -> Scenario:
    """Make the job's scenario, with its data taken from the object store instead of from disk or the network."""
    from fdsim.scenario import parse_scenario

    for place in reversed(job.import_from):
        import_also_from(Path(place))
    scenario = parse_scenario(job.scenario, job.trial)
    return scenario.model_copy(update={"data": holding(scenario.data, examples)})


def _keep_trace(folder: Path, key: str, content: bytes) -> None:
    path = TraceCache(folder).path_of(key)
    if not path.exists():
        write_whole(path, content)


def _deliver(folder: Path, trial: str, delivery: Delivery) -> bytes | None:
    if delivery.results == "shared":
        return None
    if delivery.results == "ship":
        return pack(folder)
    RemoteFolder(delivery.results).put(folder, f"trials/{trial}")
    return pack_small(folder)


def _unfinished(folder: Path, delivery: Delivery) -> bytes | None:
    """Pack an unfinished trial with its checkpoint, so that it can be resumed elsewhere."""
    if delivery.results == "shared" or not (folder / "run.json").exists():
        return None
    return pack(folder)
