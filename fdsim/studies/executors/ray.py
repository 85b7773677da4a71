"""The Ray executor: trials as tasks on a cluster. Ray is imported only when this executor is used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from fdsim.distributed.cluster import connect, first_line
from fdsim.errors import InputError
from fdsim.scenario import hash_of, parse_scenario
from fdsim.studies.executors.base import Ended, Event, Failed, Started
from fdsim.studies.executors.ray_tasks import Delivery, TrialResult, make_trace_bytes, run_and_deliver
from fdsim.studies.results import RemoteFolder, pack, unpack
from fdsim.studies.trial import TrialJob
from fdsim.trace.cache import TraceCache, link_or_copy


@dataclass(frozen=True)
class RayChoices:
    """Which cluster, and the resources of one run."""

    address: str | None = None
    """auto, host:port, ray://host:port; local, or None without RAY_ADDRESS, starts one on this machine."""
    workers: int | None = None
    threads_per_run: int = 1
    gpus_per_run: float | None = None
    results: str | None = None
    """shared, ship (if not given), or a URL."""


class RayExecutor:
    """Gives trials to a Ray cluster; everything that happens to them, lost machines included, comes back as events."""

    def __init__(self, choices: RayChoices, study: Path) -> None:
        self._choices = choices
        self._delivery = Delivery(choices.results or "ship", name_among_studies(study))
        if self._delivery.results not in ("shared", "ship"):
            RemoteFolder(self._delivery.results).check()
        self._traces = TraceCache(study / "traces")
        self._running: dict[Any, TrialJob] = {}
        self._examples: dict[str, Any] = {}
        self._made: dict[str, Any] = {}
        self._bad_nodes: dict[str, str] = {}
        self._happened: list[Event] = []
        self._owns_connection = False

    def __enter__(self) -> RayExecutor:
        self._owns_connection = connect(self._choices.address)
        import ray

        options = {"num_cpus": self._choices.threads_per_run, "num_gpus": self._gpus(), "max_retries": 0}
        self._run = ray.remote(**options)(run_and_deliver)
        # A trace that was lost with its machine is made again by Ray itself.
        self._make_trace = ray.remote(num_cpus=1, max_retries=10)(_made_trace)
        return self

    def _gpus(self) -> float:
        import ray

        there = float(ray.cluster_resources().get("GPU", 0.0))
        wanted = self._choices.gpus_per_run
        if wanted is None:
            return 1.0 if there else 0.0
        if not there:
            raise InputError(
                "study.gpus_per_run", f"{wanted} of a GPU per run, but the cluster has no GPU", "remove it"
            )
        return wanted

    @property
    def slots(self) -> int:
        """How many trials fit on the cluster as it is now."""
        import ray

        have = ray.cluster_resources()
        room = int(have.get("CPU", 0.0) // self._choices.threads_per_run)
        if gpus := self._gpus():
            room = min(room, int(have.get("GPU", 0.0) / gpus))
        return max(1, min(room, self._choices.workers or room))

    def submit(self, job: TrialJob) -> None:
        """Start a trial as a task, after the trace it needs."""
        import ray

        examples = self._examples_of(job)
        trace = self._trace_of(job, examples)
        folder = Path(job.folder)
        begun = pack(folder) if self._ships and (folder / "run.json").exists() else None
        task = self._run.options(**self._placement(job)).remote(
            job, self._delivery, examples, trace, None if begun is None else ray.put(begun)
        )
        self._running[task] = job
        self._happened.append(Started(job.trial, "the cluster"))

    @property
    def _ships(self) -> bool:
        return self._delivery.results != "shared"

    def _placement(self, job: TrialJob) -> dict[str, Any]:
        """Place a trial that failed on one machine on another, if there is one."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        bad = self._bad_nodes.get(job.trial)
        if bad is None:
            return {}
        others = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["NodeID"] != bad]
        if not others:
            return {}
        return {"scheduling_strategy": NodeAffinitySchedulingStrategy(others[0], soft=True)}

    def _examples_of(self, job: TrialJob) -> Any:
        """Put a data set into the object store once, for all trials that use it."""
        import ray

        about = {key: value for key, value in job.scenario["data"].items() if key != "partition"}
        key = hash_of(about)
        if key not in self._examples:
            self._examples[key] = ray.put(parse_scenario(job.scenario, job.trial).data.examples())
        return self._examples[key]

    def _trace_of(self, job: TrialJob, examples: Any) -> Any:
        """Return the trace as an object, made on the cluster once for all trials that share it."""
        if job.scenario.get("telemetry", {}).get("events"):
            return None
        key = job.trace_key
        if key not in self._made:
            import ray

            kept = self._traces.path_of(key)
            known = ray.put((key, kept.read_bytes())) if kept.exists() else None
            self._made[key] = known or self._make_trace.remote(job, examples)
        return self._made[key]

    def wait(self, timeout_s: float) -> Sequence[Event]:
        """Collect the trials that ended."""
        import ray

        if self._running:
            ready, _ = ray.wait(
                list(self._running), num_returns=1, timeout=0 if self._happened else timeout_s
            )
            for task in ready:
                self._happened.append(self._outcome(task, self._running.pop(task)))
        happened, self._happened = self._happened, []
        return happened

    def _outcome(self, task: Any, job: TrialJob) -> Event:
        import ray

        try:
            result: TrialResult = ray.get(task)
        except ray.exceptions.RayError as error:
            # Machines and processes come and go; the trial itself is not at fault.
            return Failed(job.trial, f"lost by the cluster ({type(error).__name__}: {first_line(error)})")
        if result.packed is not None:
            unpack(result.packed, Path(job.folder))
        if result.error is not None:
            self._bad_nodes[job.trial] = result.node
            return Failed(job.trial, f"{result.error} (on {result.where})", again=result.again)
        trace = Path(job.folder) / "trace.parquet"
        if trace.exists() and not self._traces.path_of(job.trace_key).exists():
            link_or_copy(trace, self._traces.path_of(job.trace_key))
        return Ended(job.trial, result.wall_s, result.peak_mb)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        import ray

        for task in self._running:
            ray.cancel(task, force=True)
        self._running.clear()
        if self._owns_connection:
            ray.shutdown()


def name_among_studies(study: Path) -> str:
    """Return a name that differs between studies of one name in different folders."""
    return f"{study.name}-{hash_of(str(study.resolve()))[:8]}"


def _made_trace(job: TrialJob, examples: Any) -> tuple[str, bytes]:
    return job.trace_key, make_trace_bytes(job, examples)
