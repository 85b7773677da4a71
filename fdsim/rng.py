"""Named random streams: the only place where generators are made.

A stream belongs to its name, never to the order in which streams are asked for, so adding a client or a strategy moves
nobody else's numbers.
"""

from __future__ import annotations

import hashlib

import numpy as np

from fdsim.seeding import ReadySeed, seed_words

#: Clients whose streams of one name are seeded at once.
_AT_ONCE = 1024


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _text(seed: int, *names: str | int) -> str:
    # The type is part of the name: stream(1, "2") and stream(1, 2) must not be the same numbers.
    return "/".join([str(int(seed)), *(f"{type(name).__name__[0]}:{name}" for name in names)])


def stream_key(seed: int, *names: str | int) -> int:
    """Answers with the 128-bit integer that stands for a stream's name."""
    return int.from_bytes(_digest(_text(seed, *names)), "little")


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """Makes the generator that belongs to a name, as in `stream(seed, "link", client)`."""
    return np.random.Generator(np.random.PCG64(stream_key(seed, *names)))


class ClientStreams:
    """`stream(seed, name, client)` of clients 0..K−1, cheap for those who ask for one client after the other."""

    def __init__(self, seed: int, clients: int) -> None:
        self.seed, self._clients = seed, clients
        #: name → (the first client of those seeded last, their keys, their seeds).
        self._seeded: dict[str, tuple[int, list[bytes], np.ndarray]] = {}

    def __call__(self, name: str, client: int) -> np.random.Generator:
        """Makes the generator anew, so that it starts from its first number."""
        first = client - client % _AT_ONCE
        if name not in self._seeded or self._seeded[name][0] != first:
            start = _text(self.seed, name, 0)[:-1]
            keys = [_digest(f"{start}{k}") for k in range(first, min(first + _AT_ONCE, self._clients))]
            self._seeded[name] = first, keys, seed_words(b"".join(keys))
        _, keys, seeds = self._seeded[name]
        place = client - first
        ready = ReadySeed(keys[place], seeds[place])
        # numpy takes anything that is registered as a seed sequence; its annotations name only its own.
        return np.random.Generator(np.random.PCG64(ready))  # type: ignore[arg-type]


def torch_seed(seed: int, *names: str | int) -> int:
    """Answers with a 63-bit seed for a torch generator that belongs to a name."""
    return stream_key(seed, *names) & (2**63 - 1)
