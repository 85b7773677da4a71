"""Untrusted pickles: plain containers, numbers and text, never a class or a function.

A pickle is a program. Its one dangerous instruction is to import something and call it; here every import is refused, so
that nothing but dicts, lists, tuples, sets, numbers, text and bytes can come out.
"""

from __future__ import annotations

import pickle
from typing import Any

#: How a damaged pickle fails: missing operands, bad indices, text that is not UTF-8, huge sizes.
DAMAGED = (
    EOFError,
    ValueError,
    IndexError,
    KeyError,
    TypeError,
    AttributeError,
    MemoryError,
    OverflowError,
)


class PlainUnpickler(pickle.Unpickler):
    """Raises a pickle.UnpicklingError where anything is to be imported."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it wants to import {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to objects outside the file")
