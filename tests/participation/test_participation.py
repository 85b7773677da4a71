"""Sources of a trace that simulate no devices: contracts and theory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fdsim.catalogue import MENU, NestedError, build
from fdsim.errors import InputError
from fdsim.participation.base import Participation, ParticipationSetting
from fdsim.testing import check_participation
from fdsim.trace import Cause, Phase, open_trace, plain_round, write_trace

TABLES: dict[str, dict[str, Any]] = {
    "fixed_ratio": {"clients": 20, "alpha": 0.5},
    "bernoulli": {"clients": 20, "active_prob": 0.3},
    "markov": {"clients": 20},
    "periodic": {"clients": 20, "period": 4},
    "scripted": {"clients": 3, "absences": [{"client": 1, "from_round": 1, "to_round": 2}]},
}


def make(kind: str, **fields: Any) -> Participation:
    made = build("participation", {"kind": kind, **fields})
    assert isinstance(made, Participation)
    return made


def masks(source: Participation, rounds: int, cluster: np.ndarray | None = None) -> np.ndarray:
    setting = ParticipationSetting(rounds, 1, 60.0, cluster)
    return np.array([r.outcome == 0 for r in source.rounds(setting)])


def test_every_kind_is_covered_here() -> None:
    assert set(TABLES) | {"trace"} == set(MENU["participation"])


@pytest.mark.parametrize("kind", TABLES)
def test_contract(kind: str) -> None:
    check_participation(make(kind, **TABLES[kind]))


def test_the_papers_ratio_with_one_of_each_cluster_and_everybody_in_round_0() -> None:
    cluster = np.repeat(np.arange(5), 4)
    active = masks(make("fixed_ratio", clients=20, alpha=0.7), 50, cluster)
    assert active[0].all()
    assert (active[1:].sum(axis=1) == 6).all()
    for c in range(5):
        assert active[:, cluster == c].any(axis=1).all()
    with pytest.raises(InputError, match=r"alpha ≤ 0\.75"):
        masks(make("fixed_ratio", clients=20, alpha=0.8), 2, cluster)


def test_bernoulli_shares() -> None:
    chances = [0.1] * 10 + [0.9] * 10
    active = masks(make("bernoulli", clients=20, active_prob=chances), 2000)
    np.testing.assert_allclose(active.mean(axis=0), chances, atol=0.03)


def test_markov_is_in_equilibrium_from_the_start() -> None:
    active = masks(make("markov", clients=4000, drop_prob=0.1, return_prob=0.3), 20)
    assert active[0].mean() == pytest.approx(0.75, abs=0.03)
    stays = active[1:][active[:-1]].mean()
    assert stays == pytest.approx(0.9, abs=0.01)


def test_periodic_by_spread_and_by_cluster() -> None:
    active = masks(make("periodic", clients=4, period=4, active_frac=0.5), 4)
    assert active.sum(axis=0).tolist() == [2, 2, 2, 2]
    assert active.sum(axis=1).tolist() == [2, 2, 2, 2]
    cluster = np.array([0, 0, 1, 1])
    together = masks(make("periodic", clients=4, period=4, phase="by_cluster"), 8, cluster)
    np.testing.assert_array_equal(together[:, 0], together[:, 1])
    np.testing.assert_array_equal(together[:, 0], ~together[:, 2])
    with pytest.raises(InputError, match="needs clusters"):
        masks(make("periodic", clients=4, phase="by_cluster"), 1)


def test_scripted() -> None:
    source = make("scripted", **TABLES["scripted"])
    assert (~masks(source, 5)).nonzero()[0].tolist() == [1, 2]
    [r] = list(source.rounds(ParticipationSetting(1, 1, 60.0)))
    assert (r.round_start_s, r.round_end_s) == (0.0, 60.0)
    dropped = list(source.rounds(ParticipationSetting(2, 1, 60.0)))[1]
    assert (dropped.cause[1], dropped.phase[1]) == (Cause.scripted, Phase.check_in)


def test_a_trace_is_played_again_exactly(tmp_path: Path) -> None:
    path = str(tmp_path / "t.parquet")
    write_trace(path, (plain_round(t, np.array([True, t % 2 == 0, False]), 60.0) for t in range(6)))
    source = make("trace", path=path)
    assert source.client_count == 3
    check_participation(source)
    played = write_trace(tmp_path / "again.parquet", source.rounds(ParticipationSetting(6, 9, 1.0)))
    assert played.content_hash == open_trace(path).content_hash
    with pytest.raises(InputError, match="6 rounds, and 7 are wanted"):
        list(source.rounds(ParticipationSetting(7, 9, 1.0)))
    with pytest.raises(NestedError, match="has 3 clients, not 4"):
        make("trace", path=path, clients=4)
    with pytest.raises(NestedError, match="no such file"):
        make("trace", path=str(tmp_path / "nothing.parquet"))


@pytest.mark.parametrize(
    ("kind", "fields", "word"),
    [
        ("fixed_ratio", {"clients": 10, "alpha": 1.0}, "alpha"),
        ("fixed_ratio", {"clients": 0, "alpha": 0.5}, "clients"),
        ("bernoulli", {"clients": 3, "active_prob": [0.5, 0.5]}, "2 probabilities for 3"),
        ("bernoulli", {"clients": 3, "active_prob": 1.5}, "active_prob"),
        ("markov", {"clients": 3, "drop_prob": 0}, "drop_prob"),
        (
            "scripted",
            {"clients": 2, "absences": [{"client": 2, "from_round": 0, "to_round": 1}]},
            "no client 2",
        ),
        (
            "scripted",
            {"clients": 2, "absences": [{"client": 1, "from_round": 3, "to_round": 1}]},
            "before it starts",
        ),
        ("periodic", {"clients": 2, "active_frac": 0}, "active_frac"),
    ],
)
def test_bad_tables_are_refused(kind: str, fields: dict[str, Any], word: str) -> None:
    with pytest.raises(NestedError, match=word):
        make(kind, **fields)
