"""Rows of clients end to end in one array: the same as K arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdsim.data.holdings import Holdings
from fdsim.data.partition import stable_order

UNEQUAL = (np.array([3, 1]), np.array([], dtype=np.int32), np.array([7, 5, 0]))
EQUAL = tuple(np.arange(6).reshape(3, 2))


def same(held: Holdings, arrays: tuple[np.ndarray, ...]) -> None:
    assert len(held) == len(arrays)
    assert [rows.tolist() for rows in held] == [rows.tolist() for rows in arrays]
    assert [held[client].tolist() for client in range(len(held))] == [rows.tolist() for rows in arrays]
    assert held.counts.tolist() == [len(rows) for rows in arrays]


@pytest.mark.parametrize("arrays", [UNEQUAL, EQUAL, ()], ids=["unequal", "equal", "none"])
def test_holdings_are_a_sequence_of_arrays(arrays: tuple[np.ndarray, ...]) -> None:
    held = Holdings.of(arrays)
    same(held, arrays)
    assert held.rows.dtype == np.int64
    assert Holdings.of(held) is held
    assert [rows.tolist() for rows in held[1:]] == [rows.tolist() for rows in arrays[1:]]
    with pytest.raises(IndexError):
        held[len(arrays)]


def test_the_last_client_can_be_counted_from_the_end() -> None:
    assert Holdings.of(UNEQUAL)[-1].tolist() == [7, 5, 0]


@pytest.mark.parametrize("arrays", [UNEQUAL, EQUAL], ids=["unequal", "equal"])
@pytest.mark.parametrize("order", [[2, 0, 1], [1, 2]])
def test_clients_change_places(arrays: tuple[np.ndarray, ...], order: list[int]) -> None:
    same(Holdings.of(arrays).taken(np.array(order)), tuple(arrays[client] for client in order))


@pytest.mark.parametrize("arrays", [UNEQUAL, EQUAL], ids=["unequal", "equal"])
def test_labels_are_counted(arrays: tuple[np.ndarray, ...]) -> None:
    labels = np.array([0, 1, 1, 2, 2, 2, 0, 0])
    counted = Holdings.of(arrays).label_counts(labels, 4)
    assert counted.tolist() == [
        np.bincount(labels[rows.astype(np.int64)], minlength=4).tolist() for rows in arrays
    ]


@given(st.lists(st.integers(-3, 70_000)))
def test_the_order_is_that_of_numpy(values: list[int]) -> None:
    given_values = np.array(values, dtype=np.int64)
    assert stable_order(given_values).tolist() == np.argsort(given_values, kind="stable").tolist()
