"""Keeps the C library from returning freed tensors to the operating system between two steps."""

from __future__ import annotations

import ctypes
import platform
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


@cache
def keep_freed_memory() -> bool:
    """Let glibc reuse freed memory instead of unmapping it; return whether that worked.

    A training step frees and takes the same few megabytes again and again; with the default thresholds each of them
    is unmapped, and every page of the next step's tensors has to be faulted in anew, which took a tenth of the time
    of small convolutional nets. Elsewhere than on Linux with glibc nothing is done.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    return bool(library.mallopt(_TRIM_THRESHOLD, 2**30) and library.mallopt(_MMAP_THRESHOLD, 2**25))
