"""Where a round's real time goes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")


class Stopwatch:
    """Adds up real time by purpose."""

    def __init__(self) -> None:
        self._began_s = time.perf_counter()
        self.spent_s = {"train": 0.0, "blend": 0.0, "evaluate": 0.0, "analytics": 0.0}

    @contextmanager
    def on(self, purpose: str) -> Iterator[None]:
        """Add the time spent inside this context to a purpose."""
        began_s = time.perf_counter()
        try:
            yield
        finally:
            self.spent_s[purpose] += time.perf_counter() - began_s

    def over(self, purpose: str, items: Iterable[Item]) -> Iterator[Item]:
        """Yield items, counting only the time it takes to make them."""
        source = iter(items)
        while True:
            with self.on(purpose):
                try:
                    item = next(source)
                except StopIteration:
                    return
            yield item

    @property
    def total_s(self) -> float:
        """Seconds since the watch was made."""
        return time.perf_counter() - self._began_s
