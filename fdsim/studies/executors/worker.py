"""A worker process of the local executor: reads trials from standard input, one JSON line each, until it closes.

It is started by the driver, or forked by a nursery, which has imported everything already. Trials are run one after
another in the same process, so that starting Python and torch is paid for once. What trials print goes to the log that
is this process's standard error; standard output belongs to the driver.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import signal
import sys
import threading
import traceback
from contextlib import suppress
from typing import Any, TextIO

from fdsim.devices.engine.gc_pause import paused
from fdsim.errors import FdsimError, InputError
from fdsim.studies.trial import TrialJob, run_trial
from fdsim.studies.worker_use import peak_mb

#: How long a trial may take to close its files after the driver is gone or wants it to stop.
_GRACE_S = 3.0


class _Stop:
    """Whether the driver has asked this process to end, or has itself ended."""

    asked = False


def main() -> None:
    """Run trials until standard input closes."""
    answers = _take_standard_output()
    jobs: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    stop = _Stop()
    # Ctrl-C reaches the whole process group; only the driver decides what it means.
    signal.signal(signal.SIGINT, lambda number, frame: _interrupt(stop))
    threading.Thread(target=_listen, args=(jobs, stop), daemon=True).start()
    with suppress(KeyboardInterrupt, BrokenPipeError):
        import_ahead()
        while (message := jobs.get()) is not None:
            _work(message, answers)
    _leave()


def _leave() -> None:
    """End the process without taking Python and torch down, which takes most of a second: all files are closed."""
    with suppress(KeyboardInterrupt):
        atexit._run_exitfuncs()  # those of the user's own code, which may have something to send
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0)


def import_ahead() -> None:
    """Import what every trial needs; what cannot be imported is told by the trial that fails for it.

    The collector of garbage is paused: looking through all of torch for some takes a sixth of the import.
    """
    with suppress(ImportError), paused():
        # Arrow imports pandas when it makes its first table.
        import pandas  # noqa: F401
        import torch  # noqa: F401

        import fdsim.learning.cohort.cohort
        import fdsim.learning.engine
        import fdsim.pipeline  # noqa: F401


def _interrupt(stop: _Stop) -> None:
    if stop.asked:
        raise KeyboardInterrupt


def _take_standard_output() -> TextIO:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    return answers


def _listen(jobs: queue.SimpleQueue[dict[str, Any] | None], stop: _Stop) -> None:
    """Pass jobs on; the end of input, which a killed driver also causes, stops a running trial."""
    for line in sys.stdin:
        jobs.put(json.loads(line))
    stop.asked = True
    jobs.put(None)
    deadline = threading.Timer(_GRACE_S, os._exit, args=(1,))
    deadline.daemon = True
    deadline.start()
    signal.raise_signal(signal.SIGINT)


def _work(message: dict[str, Any], answers: TextIO) -> None:
    lists = ("import_from", "callbacks")
    job = TrialJob(**{**message, **{name: tuple(message[name]) for name in lists}})

    def answer(**about: Any) -> None:
        print(json.dumps({"trial": job.trial, **about}), file=answers)

    try:
        wall_s = run_trial(job, lambda frac: answer(frac=frac))
        answer(wall_s=wall_s, peak_mb=peak_mb())
    except BrokenPipeError:
        raise
    except FdsimError as error:
        # Invalid input stays invalid however often it is retried.
        answer(error=str(error), again=not isinstance(error, InputError))
    except Exception as error:
        traceback.print_exc()
        answer(error=f"{type(error).__name__}: {error}", again=True)


if __name__ == "__main__":
    main()
