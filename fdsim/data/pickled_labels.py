"""The labels in CIFAR's files, which are pickles; nothing else of them is made, and nothing they name is imported.

A pickle is a program whose one dangerous instruction is to import something and call it. The images are NumPy arrays, made
by three names of NumPy; something that takes whatever it is handed and keeps nothing stands for these, and every
other name is refused.
"""

from __future__ import annotations

import pickle
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

#: NumPy's part of an array's pickle; its private modules were renamed in NumPy 2.
_ARRAY_PARTS = {
    *((f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
}


class _Unread:
    """Stands for an array that nobody looks at."""

    def __init__(self, *given: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        pass


class _LabelUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ARRAY_PARTS:
            return _Unread
        raise pickle.UnpicklingError(f"it wants to import {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to objects outside the file")


def pickled_labels(paths: tuple[Path, ...], key: str, *, classes: int) -> np.ndarray | None:
    """Return the lists of labels under a key, one after another [N]; None where some file is not as it should be."""
    return _read(paths, tuple(path.stat().st_mtime_ns for path in paths), key, classes)


@lru_cache(
    maxsize=2
)  # the trials of a study have their labels in common, and the images around them take time to skip
def _read(paths: tuple[Path, ...], stamps_ns: tuple[int, ...], key: str, classes: int) -> np.ndarray | None:
    found: list[int] = []
    for path in paths:
        try:
            with open(path, "rb") as file:
                # Python 2 wrote them, whose text is left as bytes: to decode the images as text would take longer.
                batch = _LabelUnpickler(file, encoding="bytes").load()
            found += batch[key.encode()]
        # A damaged pickle fails in many ways, and whoever has the images checked says which file it is.
        except (
            OSError,
            pickle.UnpicklingError,
            EOFError,
            ValueError,
            IndexError,
            KeyError,
            TypeError,
            AttributeError,
            MemoryError,
            OverflowError,
        ):
            return None
    if not found or not all(type(label) is int and 0 <= label < classes for label in found):
        return None
    return np.array(found, dtype=np.int64)
