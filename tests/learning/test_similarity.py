"""Comparing updates: scores, groups of pairs, and what a sketch keeps of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fdsim.kernels import updates as update_kernel
from fdsim.learning.similarity import Sketch, UpdateComparer, pair_scores
from fdsim.strategies.base import Federation, UpdateScore


def federation(parameters: int, clients: int = 12, seed: int = 0) -> Federation:
    weight = np.full(clients, 1 / clients)
    return Federation(clients, 1, parameters, seed, weight, None, torch.device("cpu"), torch.float64)


def updates(clients: int, parameters: int) -> torch.Tensor:
    return torch.randn(clients, parameters, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_scores_are_the_definitions() -> None:
    rows = updates(12, 40)
    comparer = UpdateComparer(UpdateScore(), federation(40))
    comparer.begin(0, None, 12)
    for start in range(0, 12, 5):
        places = np.arange(start, min(start + 5, 12))
        comparer.add(places, rows[places])
    products = comparer.products().numpy()
    cosine = torch.nn.functional.cosine_similarity(rows[:, None], rows[None], dim=2).numpy()
    apart = torch.cdist(rows, rows).numpy()
    off = ~np.eye(12, dtype=bool)
    by_cosine = pair_scores(products, None, UpdateScore("cosine"), learning_rate=0.1)
    by_distance = pair_scores(products, None, UpdateScore("distance"), learning_rate=0.1)
    np.testing.assert_allclose(by_cosine.scores[off], (0.5 * (cosine + 1))[off], atol=1e-12)
    np.testing.assert_allclose(by_distance.scores[off], (-apart / 0.1)[off], atol=1e-9)
    np.testing.assert_allclose(by_cosine.distances[off], (apart / 0.1)[off] ** 2, atol=1e-8)
    assert np.isnan(np.diag(by_cosine.scores)).all()


def test_pairs_across_groups_are_never_multiplied() -> None:
    """Pairs (0, 4), (4, 7) and (2, 3) are wanted; 1, 5 and 6 are compared with nobody and take no room."""
    wanted = np.zeros((8, 8), dtype=bool)
    for i, j in ((0, 4), (4, 7), (2, 3)):
        wanted[i, j] = wanted[j, i] = True
    rows = updates(8, 20)
    comparer = UpdateComparer(UpdateScore(), federation(20))
    comparer.begin(0, wanted, 8)
    assert sorted(group.tolist() for group in comparer.groups) == [[0, 4, 7], [2, 3]]
    assert comparer.pairs == 4
    rows[[1, 5, 6]] = float("nan")  # whoever multiplied these would see it
    comparer.add(np.array([3, 0, 1]), rows[[3, 0, 1]])
    comparer.add(np.array([2, 4, 5, 6, 7]), rows[[2, 4, 5, 6, 7]])
    products = comparer.products().numpy()
    found = pair_scores(products, wanted, UpdateScore(), learning_rate=1.0).scores
    assert np.array_equal(np.isfinite(found), wanted)
    expected = torch.nn.functional.cosine_similarity(rows[4], rows[7], dim=0)
    assert found[4, 7] == found[7, 4] == pytest.approx(0.5 * (float(expected) + 1))


def test_many_rows_go_through_panels() -> None:
    rows = updates(130, 10)
    comparer = UpdateComparer(UpdateScore(), federation(10, clients=130))
    comparer.begin(0, None, 130)
    comparer.add(np.arange(130), rows)
    np.testing.assert_allclose(
        np.triu(comparer.products().numpy()), np.triu((rows @ rows.T).numpy()), atol=1e-12
    )


def test_nobody_to_compare_with() -> None:
    comparer = UpdateComparer(UpdateScore(), federation(10))
    comparer.begin(0, np.zeros((3, 3), dtype=bool), 3)
    assert comparer.groups == []
    comparer.begin(0, None, 1)
    assert comparer.groups == []
    comparer.add(np.array([0]), updates(1, 10))
    assert comparer.products().tolist() == [[0.0]]


def test_an_update_of_zero_is_neither_like_nor_unlike() -> None:
    found = pair_scores(np.array([[0.0, 0.0], [0.0, 4.0]]), None, UpdateScore(), learning_rate=1.0)
    assert found.scores[0, 1] == 0.5


@pytest.mark.parametrize("concentrated", [False, True])
def test_sketches_keep_inner_products_within_the_stated_bound(concentrated: bool) -> None:
    """Unbiased, variance at most 2/m, and cosines within 2ε/(1 − ε) but for a share of 6/(m·ε²)."""
    m, parameters, tries = 64, 1000, 400
    pair = updates(2, parameters)
    if concentrated:  # most of the length in a few coordinates is the hard case for a count sketch
        pair = pair * torch.linspace(1, 0, parameters, dtype=torch.float64) ** 12
    pair[1] += 0.7 * pair[0]
    pair /= torch.linalg.vector_norm(pair, dim=1, keepdim=True)
    true = float(pair[0] @ pair[1])
    products, cosines = [], []
    for round_index in range(tries):
        first, second = Sketch(federation(parameters), m, round_index=round_index).of(pair)
        products.append(float(first @ second))
        cosines.append(float(first @ second / (first.norm() * second.norm())))
    assert np.mean(products) == pytest.approx(true, abs=4 * np.sqrt(2 / m / tries))
    assert np.var(products) <= 2 / m * 1.3
    error = np.abs(np.array(cosines) - true)
    for epsilon in (0.4, 0.6):
        assert (error > 2 * epsilon / (1 - epsilon)).mean() <= 6 / (m * epsilon**2)
    assert error.mean() < 0.2


def test_sketches_repeat_by_seed_and_round_alone() -> None:
    rows = updates(3, 50)
    one, same, later, other = (
        Sketch(federation(50, seed=seed), 16, round_index=r).of(rows)
        for seed, r in ((0, 1), (0, 1), (0, 2), (9, 1))
    )
    assert torch.equal(one, same)
    assert not torch.allclose(one, later)
    assert not torch.allclose(one, other)


def test_a_sketch_as_large_as_the_model_loses_nothing() -> None:
    rows = updates(3, 16)
    sketched = Sketch(federation(16), 16, round_index=0).of(rows)
    torch.testing.assert_close(sketched @ sketched.T, rows @ rows.T)


@pytest.mark.skipif(update_kernel.kernel() is None, reason="there is no C compiler")
@pytest.mark.parametrize(("parameters", "m"), [(16, 16), (1000, 64), (1000, 999), (3000, 8)])
def test_the_kernel_sketches_as_torch_does(parameters: int, m: int) -> None:
    rows, told = updates(5, parameters), federation(parameters)
    by_torch, by_kernel = (
        Sketch(replace(told, direct=direct), m, round_index=3).of(rows) for direct in (False, True)
    )
    torch.testing.assert_close(by_kernel, by_torch)


def test_few_clients_and_small_nets_are_compared_whole() -> None:
    """Of 5 active clients whole updates are compared, of 6 sketches; unless the net is hardly larger than those."""
    for parameters, wanted in ((4 * 16, [True, False]), (4 * 16 - 1, [True, True])):
        comparer = UpdateComparer(
            UpdateScore("distance", 16, whole_up_to=5), federation(parameters, clients=6)
        )
        found = []
        for active in (5, 6):
            comparer.begin(0, None, active)
            comparer.add(np.arange(active), updates(active, parameters))
            exact = updates(active, parameters) @ updates(active, parameters).T
            found.append(comparer.whole)
            assert torch.allclose(comparer.products().triu(), exact.triu()) == comparer.whole
        assert found == wanted
