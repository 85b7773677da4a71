"""Streams belong to their names."""

import pickle

import numpy as np

from fdsim.rng import ClientStreams, seed_words, stream, torch_seed


def test_same_name_same_numbers() -> None:
    assert stream(1, "link", 3).random(5).tolist() == stream(1, "link", 3).random(5).tolist()


def test_names_seeds_and_types_all_matter() -> None:
    names = [(1, "link", 3), (1, "link", 4), (2, "link", 3), (1, "link", "3"), (1, "usage", 3), (1, "link3")]
    first = [stream(seed, *rest).integers(2**60) for seed, *rest in names]
    assert len(set(first)) == len(names)


def test_numpy_integers_name_the_same_stream() -> None:
    assert stream(1, "link", int(np.int64(3))).random() == stream(1, "link", 3).random()


def test_torch_seeds_fit_torch() -> None:
    assert all(0 <= torch_seed(seed, "net") < 2**63 for seed in range(100))


def test_streams_look_independent() -> None:
    draws = np.stack([stream(7, "link", client).standard_normal(2000) for client in range(20)])
    correlation = np.corrcoef(draws) - np.eye(20)
    assert np.abs(correlation).max() < 0.12


def test_streams_of_many_clients_are_those_of_each() -> None:
    streams = ClientStreams(3, 2500)
    for client in (0, 1, 1023, 1024, 2499, 7):
        for name in ("link", "screen"):
            for _ in range(2):
                assert streams(name, client).random(5).tolist() == stream(3, name, client).random(5).tolist()
    many, one = streams("link", 5), stream(3, "link", 5)
    assert [g.random() for g in many.spawn(2) + many.spawn(1)] == [
        g.random() for g in one.spawn(2) + one.spawn(1)
    ]
    assert pickle.loads(pickle.dumps(many)).random() == one.random()


def test_seeds_at_once_are_numpys_own() -> None:
    keys = [0, 1, 2**32, 2**64 - 1, 2**127, 2**128 - 1, *(2**128 // 3**power for power in range(1, 40))]
    words = seed_words(b"".join(key.to_bytes(16, "little") for key in keys))
    expected = [np.random.SeedSequence(key).generate_state(4, np.uint64) for key in keys]
    np.testing.assert_array_equal(words, expected)
