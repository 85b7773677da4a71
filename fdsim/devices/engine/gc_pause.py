"""Keep Python's cyclic garbage collector away from fleets: each of its passes visits every device.

At 20 000 devices the passes would take as long as all the rest, and find next to nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Make no pass while a fleet is built, or lives through a round."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def frozen() -> Iterator[None]:
    """Leave whatever exists by now out of all passes to come, so that those between rounds are short."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
