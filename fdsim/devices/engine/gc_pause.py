"""Python's collector of garbage in circles, kept away from fleets: each of its searches goes through every device.

At 20 000 devices the searches would take as long as all the rest, and find next to nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def at_rest() -> Iterator[None]:
    """No search while a fleet is built, or lives through a round."""
    was_at_work = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_at_work:
            gc.enable()


@contextmanager
def kept_apart() -> Iterator[None]:
    """Whatever exists by now is left out of all searches to come, so that those between rounds are short."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
