"""A fleet over several processes: its blocks are lived through on all cores, or on a Ray cluster."""

from __future__ import annotations

import pickle
import queue
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from fdsim.devices.config.simulation import SimulationConfig
from fdsim.devices.engine.assembly import request_of
from fdsim.devices.engine.blocks import Block, Blocks, live, packed, shared
from fdsim.devices.engine.lookahead import OnPart
from fdsim.devices.engine.world import simulate
from fdsim.distributed.cluster import connect, first_line, usable_cores, worker_environment
from fdsim.distributed.fleet_worker import FleetJob, live_through
from fdsim.errors import FdsimError, RunError
from fdsim.files import storage_errors
from fdsim.trace import TraceRound

#: A fleet whose trace has fewer rows is simulated about as soon as processes have started.
WORTH_ROWS = 200_000
#: Blocks for each worker, so that none waits long for the last.
_BLOCKS_EACH = 8


@dataclass(frozen=True)
class FleetSpread:
    """Over how many processes a fleet is spread, here or on a Ray cluster; the trace is the same."""

    workers: int | None = None
    """If not given, as many as there are cores, where the fleet is worth it."""
    ray: bool = False
    address: str | None = None
    """Of the cluster, see `connect`."""


@dataclass(frozen=True)
class Told:
    """Who is told of the simulation: of its time, of parts of a large fleet, and of what a person may want to know."""

    time: Callable[[float], None]
    part: OnPart
    note: Callable[[str], None]


def simulate_spread(
    config: SimulationConfig, spread: FleetSpread, *, beside: Path, told: Told
) -> Iterator[TraceRound]:
    """Simulate a fleet over several processes where its devices share nothing, and on one clock where they do.

    Blocks wait for each other in a folder beside the file `beside`.
    """
    asked = (spread.workers or 1) > 1
    reason = shared(config)
    target = config.server.selection.target_of(config.devices)
    large = target * config.rounds >= WORTH_ROWS
    if reason is not None and (asked or large):
        told.note(f"the fleet is simulated in one process, since its devices depend on each other: {reason}")
    elif spread.ray and not asked and not large:
        told.note("the fleet is simulated here, since it is too small to be worth a cluster")
    if reason is not None or not (asked or large):
        yield from simulate(config, on_time=told.time, on_part=told.part)
        return
    with storage_errors(beside, resumable=False):
        beside.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{beside.name}.blocks-", dir=beside.parent) as folder:
        with _workers(config, spread) as workers:
            blocks = Blocks(config, at_least=_BLOCKS_EACH * workers.slots if workers.slots > 1 else 1)
            places = [Path(folder) / str(index) for index in range(len(blocks))]
            end_s = request_of(config, config.rounds).start_s
            for done, _ in enumerate(workers.live(blocks, places), 1):
                told.part(done / len(blocks), end_s)
        for made in blocks.merged(places):
            told.time(made.round_end_s)
            yield made


class _Workers(Protocol):
    """Whoever lives through blocks."""

    @property
    def slots(self) -> int:
        """How many blocks they live through at a time."""

    def live(self, blocks: Blocks, places: Sequence[Path]) -> Iterator[None]:
        """Put the rows of every block into its file, and yield whenever one is there."""


@contextmanager
def _workers(config: SimulationConfig, spread: FleetSpread) -> Iterator[_Workers]:
    if spread.ray:
        with _cluster(config, spread) as cluster:
            yield cluster
        return
    count = spread.workers or usable_cores()
    if count == 1:
        yield _Here(config)
        return
    job = FleetJob.of(config)
    processes = [_Process(job) for _ in range(count)]
    try:
        yield _Processes(processes)
    finally:
        for process in processes:
            process.end()


@dataclass(frozen=True)
class _Here:
    """This process."""

    config: SimulationConfig
    slots: int = 1

    def live(self, blocks: Blocks, places: Sequence[Path]) -> Iterator[None]:
        for index, place in enumerate(places):
            rows = packed(live(self.config, blocks[index]))
            with storage_errors(place, resumable=False):
                place.write_bytes(rows)
            yield


class _Process:
    """A process on this machine, and the one block that it lives through."""

    def __init__(self, job: FleetJob) -> None:
        self._job: FleetJob | None = job
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "fdsim.distributed.fleet_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=worker_environment(threads=1),
        )

    def live(self, block: Block, place: Path) -> None:
        """Have a block lived through, and wait for it."""
        orders, answers = self._process.stdin, self._process.stdout
        if orders is None or answers is None:
            raise ValueError("a worker without pipes")
        try:
            # The first order carries what all have in common.
            pickle.dump((self._job, block, place), orders)
            orders.flush()
            self._job = None
            answer = pickle.load(answers)
        except (BrokenPipeError, EOFError):
            code = self._process.wait()
            raise RunError(
                f"a process that simulated a part of the fleet ended ({_ending(code)}). If memory ran out, use fewer "
                "--workers"
            ) from None
        if answer is not None:
            error: Exception = pickle.loads(answer)
            raise error

    def end(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


class _Processes:
    """Processes on this machine, each with a thread here that waits for it."""

    def __init__(self, processes: Sequence[_Process]) -> None:
        self._processes = processes
        self.slots = len(processes)

    def live(self, blocks: Blocks, places: Sequence[Path]) -> Iterator[None]:
        idle: queue.SimpleQueue[_Process] = queue.SimpleQueue()
        for process in self._processes:
            idle.put(process)

        def live_one(index: int) -> None:
            process = idle.get()
            try:
                process.live(blocks[index], places[index])
            finally:
                idle.put(process)

        pool = ThreadPoolExecutor(self.slots)
        try:
            for under_way in as_completed([pool.submit(live_one, index) for index in range(len(blocks))]):
                under_way.result()
                yield
        finally:
            # Threads that still wait are freed by the end of their processes.
            pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def _cluster(config: SimulationConfig, spread: FleetSpread) -> Iterator[_Cluster]:
    ours = connect(spread.address)
    import ray

    try:
        slots = max(1, int(ray.cluster_resources().get("CPU", 1.0)))
        yield _Cluster(min(slots, spread.workers or slots), ray.put(FleetJob.of(config)))
    finally:
        if ours:
            ray.shutdown()


@dataclass(frozen=True)
class _Cluster:
    """The machines of a Ray cluster; rows come back through its object store."""

    slots: int
    job: Any

    def live(self, blocks: Blocks, places: Sequence[Path]) -> Iterator[None]:
        import ray

        # A block that is lost with its machine is lived through again by Ray itself.
        task = ray.remote(num_cpus=1, max_retries=10)(live_through)
        running: dict[Any, Path] = {}
        todo = iter(range(len(blocks)))
        while True:
            for index in islice(todo, 2 * self.slots - len(running)):
                running[task.remote(self.job, blocks[index])] = places[index]
            if not running:
                return
            (ready, *_), _ = ray.wait(list(running))
            try:
                rows = ray.get(ready)
            except ray.exceptions.RayTaskError as error:
                raise _cause(error) from None
            except ray.exceptions.RayError as error:
                raise RunError(f"the cluster lost a part of the fleet ({first_line(error)})") from None
            place = running.pop(ready)
            with storage_errors(place, resumable=False):
                place.write_bytes(rows)
            yield


def _cause(error: Any) -> Exception:
    """Return what went wrong in a task, without Ray's wrapping where it is an error of ours."""
    cause: Exception = error.cause
    return cause if isinstance(cause, FdsimError) else RunError(f"{type(cause).__name__}: {cause}")
