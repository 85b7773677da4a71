"""Read untrusted pickles: plain containers, numbers and text only, never a class or a function.

A pickle is a program. Its one dangerous instruction is to import something and call it; here every import
is refused, so that nothing but dicts, lists, tuples, sets, numbers, text and bytes can come out.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from fdsim.errors import TraceError


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it wants to import {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to objects outside the file")


def load_plain_pickle(path: Path | str) -> Any:
    """Read a pickle of plain values; anything else is refused before it runs."""
    try:
        with open(path, "rb") as file:
            return _PlainUnpickler(file).load()
    except OSError as error:
        raise TraceError(str(path), f"cannot be read ({error.strerror})") from None
    except pickle.UnpicklingError as error:
        raise TraceError(
            str(path),
            f"not a pickle of plain values: {error}",
            "only dicts, lists, numbers and text are allowed",
        ) from None
    # A damaged pickle fails in many ways: missing operands, bad indices, text that is not UTF-8, huge sizes.
    except (
        EOFError,
        ValueError,
        IndexError,
        KeyError,
        TypeError,
        AttributeError,
        MemoryError,
        OverflowError,
    ) as error:
        raise TraceError(
            str(path), f"truncated or damaged pickle ({type(error).__name__}: {error})"
        ) from None
