"""Streams belong to their names."""

import numpy as np

from fdsim.rng import stream, torch_seed


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
