"""The labels in CIFAR's files, which are pickles; nothing else of them is made, and nothing they name is imported.

The images are NumPy arrays, made by three names of NumPy; something that takes whatever it is handed and keeps nothing
stands for these, and every other name is refused. Their bytes, nearly all of a file, are not even read.
"""

from __future__ import annotations

import pickle
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from fdsim.data.plain_pickle import DAMAGED, PlainUnpickler
from fdsim.data.short_pickle import load_short

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


class _LabelUnpickler(PlainUnpickler):
    def find_class(self, module: str, name: str) -> Any:
        return _Unread if (module, name) in _ARRAY_PARTS else super().find_class(module, name)


def pickled_labels(paths: tuple[Path, ...], key: str, *, classes: int) -> np.ndarray | None:
    """Return the lists of labels under a key, one after another [N]; None where some file is not as it should be."""
    return _read(paths, tuple(path.stat().st_mtime_ns for path in paths), key, classes)


# The trials of a study have their labels in common, and the images around them take time to skip.
@lru_cache(maxsize=2)
def _read(paths: tuple[Path, ...], stamps_ns: tuple[int, ...], key: str, classes: int) -> np.ndarray | None:
    found: list[int] = []
    for path in paths:
        try:
            # Python 2 wrote them, whose text is left as bytes: it need not be UTF-8.
            batch = load_short(path, partial(_LabelUnpickler, encoding="bytes"))
            found += batch[key.encode()]
        # A damaged pickle fails in many ways, and whoever has the images checked says which file it is.
        except (OSError, pickle.UnpicklingError, *DAMAGED):
            return None
    if not found or not all(type(label) is int and 0 <= label < classes for label in found):
        return None
    return np.array(found, dtype=np.int64)
