"""Partitions are partitions: disjoint, complete where promised, and refused with a remedy where impossible."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdsim.catalogue import MENU, build
from fdsim.data.partition import ByFile, Clustered, Dirichlet, Iid, QuantitySkew, Shards
from fdsim.errors import DataError
from fdsim.rng import stream

LABELS = np.arange(600) % 10


def divided(partition, clients, labels=LABELS, seed=0):
    return partition.divide(labels, clients, stream(seed, "partition"))


EVERY = [
    Iid(),
    Iid(samples_per_client=7),
    Clustered(clusters=5, labels_per_cluster=2, samples_per_client=20),
    Clustered(clusters=2, labels_per_cluster=3, samples_per_client=9, shuffle_labels=True),
    Shards(partitions=60, per_client=2),
    Dirichlet(alpha=0.5),
    QuantitySkew(alpha=0.3, min_samples=2),
]


def test_every_kind_is_tried_here():
    assert {partition.kind for partition in EVERY} | {"by_file"} == set(MENU["partition"])


@pytest.mark.parametrize("partition", EVERY)
def test_no_row_is_held_twice_and_nobody_goes_empty(partition):
    division = divided(partition, 20)
    rows = np.concatenate(division.indices)
    assert len(division.indices) == 20
    assert len(np.unique(rows)) == len(rows)
    assert rows.min() >= 0
    assert rows.max() < len(LABELS)
    assert division.sample_counts.min() >= 1


@pytest.mark.parametrize("partition", EVERY)
def test_the_stream_decides(partition):
    first, again, other = divided(partition, 20), divided(partition, 20), divided(partition, 20, seed=1)
    assert all(np.array_equal(a, b) for a, b in zip(first.indices, again.indices, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first.indices, other.indices, strict=True))


@settings(max_examples=30, deadline=None)
@given(clients=st.integers(1, 60), alpha=st.floats(0.3, 50), samples=st.integers(60, 300))
def test_whatever_is_divided_whole_adds_up(clients, alpha, samples):
    labels = np.arange(samples) % 10
    for partition in (Iid(), QuantitySkew(alpha=alpha)):
        division = divided(partition, clients, labels)
        assert np.array_equal(np.sort(np.concatenate(division.indices)), np.arange(samples))


def test_dirichlet_hands_out_every_row():
    division = divided(Dirichlet(alpha=1.0), 12)
    assert np.array_equal(np.sort(np.concatenate(division.indices)), np.arange(600))


def test_clusters_share_no_label_and_lie_in_blocks():
    division = divided(Clustered(clusters=5, labels_per_cluster=2, samples_per_client=20), 20)
    assert division.true_cluster.tolist() == [c for c in range(5) for _ in range(4)]
    for client, rows in enumerate(division.indices):
        cluster = division.true_cluster[client]
        assert len(rows) == 20
        assert set(LABELS[rows]) <= {2 * cluster, 2 * cluster + 1}


def test_shards_give_few_labels():
    division = divided(Shards(partitions=60, per_client=2), 20)
    assert division.sample_counts.tolist() == [20] * 20
    assert max(len(set(LABELS[rows])) for rows in division.indices) <= 2


def test_alpha_sets_how_few_labels():
    """The mean entropy of a client's labels grows with alpha."""

    def entropy(alpha):
        shares = [
            np.bincount(LABELS[r], minlength=10) / len(r) for r in divided(Dirichlet(alpha=alpha), 10).indices
        ]
        return np.mean([-(p[p > 0] * np.log(p[p > 0])).sum() for p in shares])

    assert entropy(0.1) < entropy(1.0) < entropy(100.0)


def test_by_file_reads_what_was_written(tmp_path):
    path = tmp_path / "who.csv"
    path.write_text("client,index,cluster\n0,5,1\n1,3,0\n0,2,1\n")
    division = divided(ByFile(path=path), 2)
    assert [rows.tolist() for rows in division.indices] == [[2, 5], [3]]
    assert division.true_cluster.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("partition", "clients", "says"),
    [
        (Iid(), 601, "more than the 600"),
        (Iid(samples_per_client=100), 7, "fewer samples per client"),
        (Clustered(clusters=6, labels_per_cluster=2), 12, "share no label"),
        (Clustered(clusters=5, labels_per_cluster=2, samples_per_client=31), 20, "samples_per_client to 30"),
        (
            Clustered(clusters=5, labels_per_cluster=2, samples_per_client=1),
            4,
            "at least one client per cluster",
        ),
        (Shards(partitions=20, per_client=2), 11, "at least 22"),
        (Shards(partitions=1000, per_client=1), 3, "one shard per sample"),
        (Dirichlet(alpha=0.001, min_samples=30), 20, "raise alpha"),
        (QuantitySkew(min_samples=100), 7, "fewer clients"),
    ],
)
def test_what_cannot_be_done_is_said(partition, clients, says):
    with pytest.raises(DataError, match=says):
        divided(partition, clients)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("who,index\n0,1\n", "no column client"),
        ("client,index\n0,1\n0,1\n", "twice"),
        ("client,index\n0,999\n", "outside"),
        ("client,index\n0,1\n", "gives client 1 nothing"),
        ("client,index\n0,1\n1,2\n2,3\n", "is for 3 clients"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, text, says):
    path = tmp_path / "who.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=says):
        divided(ByFile(path=path), 2)


def test_an_absent_file_is_refused(tmp_path):
    with pytest.raises(DataError, match="there is no file"):
        divided(build("partition", {"kind": "by_file", "path": tmp_path / "none.csv"}), 2)
