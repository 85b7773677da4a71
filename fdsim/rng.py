"""Named random streams: the only place where generators are created.

A stream depends on its name, never on the order in which streams are created, so adding a client or a strategy changes
no other stream.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISpawnableSeedSequence

#: Clients whose streams of one name are seeded at once.
_AT_ONCE = 1024


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _text(seed: int, *names: str | int) -> str:
    # The type is part of the name: stream(1, "2") and stream(1, 2) must not be the same numbers.
    return "/".join([str(int(seed)), *(f"{type(name).__name__[0]}:{name}" for name in names)])


def stream_key(seed: int, *names: str | int) -> int:
    """Return the 128-bit integer derived from a stream's name."""
    return int.from_bytes(_digest(_text(seed, *names)), "little")


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """Return the generator of a name, as in `stream(seed, "link", client)`."""
    return np.random.Generator(np.random.PCG64(stream_key(seed, *names)))


class ClientStreams:
    """`stream(seed, name, client)` of clients 0..K−1, cheap when clients come one after the other."""

    def __init__(self, seed: int, clients: int) -> None:
        self.seed, self._clients = seed, clients
        #: name → (the first client of those seeded last, their keys, their seeds).
        self._seeded: dict[str, tuple[int, list[bytes], np.ndarray]] = {}

    def __call__(self, name: str, client: int) -> np.random.Generator:
        """Return a new generator, which starts from its first number."""
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
    """Return the 63-bit seed of a name, for a torch generator."""
    return stream_key(seed, *names) & (2**63 - 1)


# -- numpy's SeedSequence for many keys at once: the same seeds, in a tenth of the time.
#
# A fleet has five generators per device, and seeding them one by one took longer than all else in building it. How
# SeedSequence mixes its entropy is covered by numpy's promise of stable streams; a test compares the two.

_WORDS = 4
_SHIFT = np.uint32(16)
#: Where each of the two hashes starts and what it is multiplied by, then the two factors that mix a pair of words.
_POOL_START, _POOL_FACTOR = 0x43B0D7E5, 0x931E8875
_STATE_START, _STATE_FACTOR = 0x8B51F9DD, 0x58F38DED
_MIX_LEFT, _MIX_RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)


class _Hash:
    """A hash of 32-bit words whose constant changes with every word."""

    def __init__(self, start: int, factor: int) -> None:
        self._constant, self._factor = start, factor

    def __call__(self, words: np.ndarray) -> np.ndarray:
        words = words ^ np.uint32(self._constant)
        self._constant = self._constant * self._factor & 0xFFFFFFFF
        words = words * np.uint32(self._constant)
        return words ^ (words >> _SHIFT)


def seed_words(keys: bytes) -> np.ndarray:
    """[n, 4] the 64-bit words that SeedSequence(key).generate_state(4, uint64) gives, of n keys of 16 bytes each."""
    entropy = np.frombuffer(keys, "<u4").reshape(-1, _WORDS)
    pool_hash, state_hash = _Hash(_POOL_START, _POOL_FACTOR), _Hash(_STATE_START, _STATE_FACTOR)
    pool = [pool_hash(entropy[:, index]) for index in range(_WORDS)]
    for source in range(_WORDS):
        for target in range(_WORDS):
            if source != target:
                mixed: np.ndarray = pool[target] * _MIX_LEFT - pool_hash(pool[source]) * _MIX_RIGHT
                pool[target] = mixed ^ (mixed >> _SHIFT)
    state = np.stack([state_hash(pool[index % _WORDS]) for index in range(2 * _WORDS)], axis=1)
    return state.astype("<u4").view("<u8").astype(np.uint64)


class ReadySeed:
    """The same as SeedSequence(key), with the words that PCG64 needs already computed."""

    __slots__ = ("_key", "_sequence", "_words")

    def __init__(self, key: bytes, words: np.ndarray) -> None:
        self._key = key
        self._words: np.ndarray | None = words
        self._sequence: np.random.SeedSequence | None = None

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> np.ndarray:
        """Return the first words; the computed ones are given away once, so that they need not stay in memory."""
        if self._words is not None and n_words == _WORDS and dtype == np.uint64:
            words, self._words = self._words, None
            return words
        return self._whole().generate_state(n_words, dtype)

    def spawn(self, n_children: int) -> list[np.random.SeedSequence]:
        """Return independent seeds, as SeedSequence(key) would."""
        return self._whole().spawn(n_children)

    def _whole(self) -> np.random.SeedSequence:
        if self._sequence is None:
            self._sequence = np.random.SeedSequence(int.from_bytes(self._key, "little"))
        return self._sequence


ISpawnableSeedSequence.register(ReadySeed)
