"""A process that lives through blocks of a fleet: on this machine, fed through its standard input, or a Ray worker."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from fdsim.catalogue import import_also_from, own_files, own_folders, own_module
from fdsim.devices.config.simulation import SimulationConfig
from fdsim.devices.engine.blocks import Block, live, packed
from fdsim.errors import FdsimError, RunError
from fdsim.files import storage_errors


@dataclass(frozen=True)
class FleetJob:
    """What a worker must know before its first block."""

    import_from: tuple[str, ...]
    modules: tuple[str, ...]
    """The user's own modules that the config names."""
    config: bytes
    """A pickled `SimulationConfig`, to be read once these modules are there."""

    @classmethod
    def of(cls, config: SimulationConfig) -> FleetJob:
        """Pack a config, and where its kinds come from."""
        try:
            content = pickle.dumps(config)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise RunError(
                f"the fleet cannot be sent to another process ({error}); put kinds of your own into a file beside "
                "the scenario, or use one worker"
            ) from None
        # Modules of scenarios that this process ran before may be gone by now.
        named = tuple(name for name in own_files() if name.encode() in content)
        return cls(tuple(map(str, own_folders())), named, content)

    def unpacked(self) -> SimulationConfig:
        """Return the config."""
        for place in reversed(self.import_from):
            import_also_from(Path(place))
        for name in self.modules:
            own_module(name)
        config: SimulationConfig = pickle.loads(self.config)
        return config


def live_through(job: FleetJob, block: Block) -> bytes:
    """Return the rows of a block; the task of a Ray worker."""
    return packed(live(job.unpacked(), block))


def main() -> None:
    """Live through blocks, each into a file, until standard input closes."""
    # Ctrl-C reaches the whole process group; the driver closes the input when it wants this process to end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    # What models of the user's own print is not an answer.
    os.dup2(2, 1)
    orders = sys.stdin.buffer
    config: SimulationConfig | None = None
    while (order := _next(orders)) is not None:
        job, block, path = order
        try:
            if job is not None:
                config = job.unpacked()
            if config is None:
                raise ValueError("the first order carries no job")
            rows = packed(live(config, block))
            with storage_errors(path, resumable=False):
                path.write_bytes(rows)
            answer = None
        except FdsimError as error:
            answer = pickle.dumps(error)
        except Exception as error:
            traceback.print_exc()
            answer = pickle.dumps(RunError(f"{type(error).__name__}: {error}"))
        pickle.dump(answer, answers)


def _next(orders: BinaryIO) -> tuple[FleetJob | None, Block, Path] | None:
    try:
        order: tuple[FleetJob | None, Block, Path] = pickle.load(orders)
    except EOFError:
        return None
    return order


if __name__ == "__main__":
    main()
