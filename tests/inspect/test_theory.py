"""The theory panel on a run small enough to work out by hand."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fdsim.errors import RunFolderError
from fdsim.inspect.theory import Constants, constants_of, theory_of
from fdsim.trace import write_trace
from tests.strategies.worlds import scripted_trace


def snapshot(strategy: str = "fdms") -> pd.DataFrame:
    """Clients 0 and 1 are friends, and so are 2 and 3; (1, 3) was never compared."""
    pairs = [
        (0, 1, 0.9, 4, 1.0),
        (2, 3, 0.8, 3, 2.0),
        (0, 2, 0.5, 3, 9.0),
        (0, 3, 0.4, 2, 8.0),
        (1, 2, 0.3, 2, 7.0),
    ]
    frame = pd.DataFrame(pairs, columns=["first", "second", "similarity", "meetings", "distance"])
    return frame.assign(strategy=strategy, round=3)


@dataclass
class HandMadeRun:
    """The parts of a run the panel reads."""

    path: Path
    frame: pd.DataFrame
    strategies: list[str]

    def similarity(self) -> pd.DataFrame:
        return self.frame

    def read(self, table: str, *, columns: list[str], strategy: str) -> pd.DataFrame:
        """Client 3 is missing from round 1, 0 from round 2, 1 and 2 from round 3; nothing is known of the last."""
        assert (table, columns) == ("clients", ["round", "substitute", "predicted_error"])
        foreseen = {"fdms_memory": [2.0, 4.0, 1.0, np.nan]}.get(strategy, [np.nan] * 4)
        there = {"round": 0, "substitute": None, "predicted_error": np.nan}
        missing = [
            {"round": r, "substitute": "client", "predicted_error": error}
            for r, error in zip((1, 2, 3, 3), foreseen, strict=True)
        ]
        return pd.DataFrame([there, *missing])

    @property
    def rounds(self) -> pd.DataFrame:
        nothing = {"friend_present_frac": np.nan, "friend_hit_frac": np.nan}
        rows = [
            {"strategy": "fdms", "round": r, "substitution_error": 0.5 * r, "friend_present_frac": 1.0}
            | {"friend_hit_frac": hit}
            for r, hit in enumerate([np.nan, 0.25, 1.0, 1.0])
        ]
        rows += [
            {"strategy": "dropout", "round": r, "substitution_error": np.nan} | nothing for r in range(4)
        ]
        return pd.DataFrame(rows)


@pytest.fixture
def run(tmp_path: Path) -> HandMadeRun:
    trace = scripted_trace({0, 1, 2, 3}, {0, 1, 2}, {1, 2, 3}, {0, 3}, clients=4)
    write_trace(tmp_path / "trace.parquet", trace, true_cluster=np.array([0, 0, 1, 1]))
    return HandMadeRun(tmp_path, snapshot(), ["fdms", "dropout"])


def test_constants_by_hand(run: HandMadeRun) -> None:
    panel = theory_of(run)
    known = panel.constants
    assert (known.clients, known.rounds, known.b_max) == (4, 4, 1)
    assert (known.sigma_p2, known.sigma_f2) == (9.0, 2.0)
    # Meetings: 01 twice, 02 twice, 03 twice, 12 three times, 13 twice, 23 twice, of four rounds.
    assert known.beta == 0.5
    # Leads: client 0 0.9 − 0.5, client 1 0.9 − 0.3, client 2 0.8 − 0.5, client 3 0.8 − 0.4.
    assert known.delta_min == pytest.approx(0.3)
    assert known.delta_f == 0.0
    assert panel.friends == "clients of the same true cluster"


def test_bounds_beside_measurements(run: HandMadeRun) -> None:
    panel = theory_of(run)
    assert panel.rounds["missing_frac"].tolist() == [0.0, 0.25, 0.25, 0.5]
    assert panel.rounds["misselection"].tolist()[1:] == [0.75, 0.0, 0.0]
    assert panel.rounds["misselection_bound"].tolist() == [1.0] * 4
    assert panel.rounds["theta"].iloc[3] == pytest.approx(
        math.sqrt((2 * math.log(2 * 16 * 4 * 1) - 2 * math.log(0.1)) / (0.5 * 3))
    )
    squares = 0.25**2 * 2 + 0.5**2
    fdms, dropout = (panel.errors.iloc[n] for n in (0, 1))
    assert fdms["error_sum"] == pytest.approx(3.0)
    assert math.isnan(dropout["error_sum"])
    assert fdms["psi_bar"] == pytest.approx(squares * 9.0)
    assert fdms["psi_star"] == pytest.approx(squares * 2.0)
    rate = 0.5 * 0.3**2 / 2
    mean = sum(math.exp(-rate * t) for t in range(4)) / 4  # the closed form is a geometric sum
    assert fdms["psi_fdms"] == pytest.approx(squares * 2.0 + 8 * squares * 9.0 * mean)


def test_predicted_errors_take_the_place_of_the_friends_distance(run: HandMadeRun) -> None:
    run.strategies.append("fdms_memory")
    foreseen = theory_of(run).errors.set_index("strategy")["psi_predicted"]
    assert foreseen.isna().tolist() == [True, True, False]
    # σ_P² = 9 for the client of which nothing was predicted.
    assert foreseen["fdms_memory"] == pytest.approx(0.25**2 * (2.0 + 4.0) + 0.5**2 * (1.0 + 9.0) / 2)


def test_the_lemma_holds_in_a_simulated_world() -> None:
    """Noisy scores, friends 0.2 ahead: non-friends are chosen no more often than the Lemma allows."""
    rng = np.random.default_rng(0)
    rounds, worlds = 400, 300
    known = Constants(3, rounds, 1.0, 1.0, beta=1.0, delta_min=0.2, delta_f=0.0, b_max=1)
    friend, stranger = (rng.random((worlds, rounds)) * 0.8 + lead for lead in (0.2, 0.0))
    count = np.arange(1, rounds + 1)
    wrong = ((friend.cumsum(axis=1) / count) <= (stranger.cumsum(axis=1) / count)).mean(axis=0)
    bound = known.misselection(count)
    assert (wrong <= bound).all()
    assert bound[-1] < 0.01


def test_friends_that_cannot_be_told_apart_make_the_bounds_empty() -> None:
    known = Constants(4, 10, 1.0, 1.0, beta=0.5, delta_min=-0.1, delta_f=0.0, b_max=1)
    assert known.misselection(np.array([1000.0])).tolist() == [1.0]
    assert known.psi_fdms(2.0, 1.0) == 1.0 + 8 * 2.0


def test_clusters_are_looked_for_in_r_when_nobody_knows_them(run: HandMadeRun) -> None:
    write_trace(run.path / "trace.parquet", scripted_trace({0, 1, 2, 3}, {0, 1, 2}, {1, 2}, {3}, clients=4))
    panel = theory_of(run)
    assert panel.friends == "the 2 clusters found in R"
    assert panel.constants.sigma_f2 == 2.0


def test_a_run_without_snapshots_says_what_to_do(run: HandMadeRun) -> None:
    run.frame = snapshot().iloc[:0]
    with pytest.raises(RunFolderError, match="similarity_every"):
        theory_of(run)
    run.frame = snapshot()
    with pytest.raises(RunFolderError, match=r"no snapshot of R for 'dropout'\. one of: fdms"):
        theory_of(run, "dropout")


def test_pairs_that_never_met_make_beta_zero() -> None:
    active = np.array([[True, False], [False, True]])
    known = constants_of(np.full((2, 2), np.nan), np.full((2, 2), np.nan), np.zeros(2), active)
    assert known.beta == 0.0
    assert math.isnan(known.sigma_p2)
