"""torch.compile with a fallback that says so."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch

log = logging.getLogger("fdsim.learning")


class Compiled:
    """Calls a function compiled, or uncompiled once compiling has failed."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.compiled: Callable[..., Any] | None = torch.compile(function)
        self._proven = False

    def __call__(self, *arguments: Any) -> Any:
        """Apply the function; an error of the very first compiled call is taken for the compiler's."""
        if self.compiled is None:
            return self.function(*arguments)
        try:
            result = self.compiled(*arguments)
        except Exception as error:
            if self._proven:
                raise
            # If the function itself is at fault it raises again here, and that error is the one to see.
            result = self.function(*arguments)
            log.warning("torch.compile failed, training continues without it: %s", str(error).split("\n")[0])
            self.compiled = None
        self._proven = True
        return result
