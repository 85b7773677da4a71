"""Named random streams: the only place where generators are made.

A stream belongs to its name, never to the order in which streams are asked for, so adding a client or a strategy moves
nobody else's numbers.
"""

from __future__ import annotations

import hashlib

import numpy as np


def stream_key(seed: int, *names: str | int) -> int:
    """Answers with the 128-bit integer that stands for a stream's name."""
    # The type is part of the name: stream(1, "2") and stream(1, 2) must not be the same numbers.
    text = "/".join([str(int(seed)), *(f"{type(name).__name__[0]}:{name}" for name in names)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """Makes the generator that belongs to a name, as in `stream(seed, "link", client)`."""
    return np.random.Generator(np.random.PCG64(stream_key(seed, *names)))


def torch_seed(seed: int, *names: str | int) -> int:
    """Answers with a 63-bit seed for a torch generator that belongs to a name."""
    return stream_key(seed, *names) & (2**63 - 1)
