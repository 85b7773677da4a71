"""Where workers come from on Linux: a process that has imported torch once, and forks a worker whenever it is asked.

Two workers that import torch at the same time take half again as long as one. A fork is safe as long as the process has
started no threads, which it looks for; one that has found some ends, and workers are then started one by one.

`python -m fdsim.studies.executors.nursery` is that process: its standard input is a socket to the driver. It ends when
the driver does; its workers notice that by their own standard input, as all workers do.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import signal
import socket
import sys
import threading
import traceback
import warnings
from pathlib import Path
from typing import NoReturn

from fdsim.studies.executors import worker

_LONGEST_MESSAGE = 4096
#: What memory allocators run beside a program; they have handlers of their own for a fork.
_HARMLESS_THREADS = {"jemalloc_bg_thd"}


def main() -> NoReturn:
    """Fork workers until the driver closes the socket."""
    # Ctrl-C reaches the whole process group; only the driver decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = socket.socket(fileno=os.dup(0))
    worker.import_ahead()
    if not _threads():
        # What is there is never garbage, and a collector that looks through it would copy it into every worker.
        gc.freeze()
        _serve(channel)
    os._exit(0)


def _threads() -> list[str]:
    """Return the names of the threads beside this one that a fork would leave behind."""
    tasks = Path("/proc/self/task")
    names = [(tasks / task / "comm").read_text().strip() for task in os.listdir(tasks)]
    beside = [name for name in names if name not in _HARMLESS_THREADS]
    return beside[1:] or [each.name for each in threading.enumerate()[1:]]


def _serve(channel: socket.socket) -> None:
    selector = selectors.DefaultSelector()
    selector.register(channel, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.data is None:
                message, files, *_ = socket.recv_fds(channel, _LONGEST_MESSAGE, 3)
                if not message:
                    return
                with warnings.catch_warnings():
                    # From Python 3.12 on it warns of any thread; which there are was looked at.
                    warnings.simplefilter("ignore", DeprecationWarning)
                    pid = os.fork()
                if not pid:
                    _become_worker(channel, selector, files)
                for file in files:
                    os.close(file)
                selector.register(os.pidfd_open(pid), selectors.EVENT_READ, pid)
                answer = {"pid": pid}
            else:
                selector.unregister(key.fileobj)
                os.close(key.fd)
                _, status = os.waitpid(key.data, 0)
                answer = {"pid": key.data, "code": os.waitstatus_to_exitcode(status)}
            try:
                channel.send(json.dumps(answer).encode())
            except OSError:
                return


def _become_worker(channel: socket.socket, selector: selectors.BaseSelector, files: list[int]) -> NoReturn:
    """Take the three standard files that the driver has sent, and work."""
    try:
        for key in list(selector.get_map().values()):
            if key.data is not None:
                os.close(key.fd)
        selector.close()
        channel.close()
        for standard, file in enumerate(files):
            os.dup2(file, standard)
            os.close(file)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 (it is read until this process ends)
        _draw_afresh()
        worker.main()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(1)


def _draw_afresh() -> None:
    """Seed NumPy's global generator, which would be the same in all workers; Python's own does so itself.

    Code of the user's own may draw from it; fdsim does not.
    """
    import numpy as np

    np.random.seed()


if __name__ == "__main__":
    main()
