"""numpy's SeedSequence for many keys at once: the same seeds, at a tenth of the time for each.

A fleet has five generators per device, and seeding them one by one took longer than all else in building it. How
SeedSequence mixes its entropy is part of numpy's promise of the same streams for ever; a test compares the two.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random.bit_generator import ISpawnableSeedSequence

_WORDS = 4
_SHIFT = np.uint32(16)
#: Where each of the two hashes starts and what it is multiplied by, then the two factors that mix a pair of words.
_POOL_START, _POOL_FACTOR = 0x43B0D7E5, 0x931E8875
_STATE_START, _STATE_FACTOR = 0x8B51F9DD, 0x58F38DED
_MIX_LEFT, _MIX_RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)


class _Hash:
    """A hash of 32-bit words whose constant moves on with every word."""

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
    """What SeedSequence(key) is, with the words that PCG64 asks for at hand."""

    __slots__ = ("_key", "_sequence", "_words")

    def __init__(self, key: bytes, words: np.ndarray) -> None:
        self._key = key
        self._words: np.ndarray | None = words
        self._sequence: np.random.SeedSequence | None = None

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> np.ndarray:
        """The first words; those at hand are given away once, so that nobody has to keep them."""
        if self._words is not None and n_words == _WORDS and dtype == np.uint64:
            words, self._words = self._words, None
            return words
        return self._whole().generate_state(n_words, dtype)

    def spawn(self, n_children: int) -> list[np.random.SeedSequence]:
        """Independent seeds, as SeedSequence(key) would give."""
        return self._whole().spawn(n_children)

    def _whole(self) -> np.random.SeedSequence:
        if self._sequence is None:
            self._sequence = np.random.SeedSequence(int.from_bytes(self._key, "little"))
        return self._sequence


ISpawnableSeedSequence.register(ReadySeed)
