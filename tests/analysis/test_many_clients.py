"""What is measured among many clients: the figures are counted right, and the bars hold at full size."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "analysis"))

import many_clients as script

ONE_STRATEGY = 'strategies=[{kind="fdms_memory"}]'


class Recorded:
    """A run of which only the clients table is asked for."""

    def __init__(self, rows: list[tuple[int, int, str, float, str | None]]) -> None:
        columns = ["round", "client", "outcome", "stand_in", "substitute"]
        self.rows = pd.DataFrame(rows, columns=columns).assign(strategy="fdms")
        self.rows["true_cluster"] = self.rows["client"] % 2

    def read(self, table: str, *, columns: list[str]) -> pd.DataFrame:
        assert table == "clients"
        return self.rows[columns]


def test_representatives_are_counted_for_the_clients_that_were_seen_before() -> None:
    """Clusters are the even and the odd. Client 3 is never seen; client 1 is missing before it is seen, and after."""
    nan = np.nan
    found = script.representatives(
        Recorded(  # type: ignore[arg-type]
            [
                *((0, k, "completed", nan, None) for k in (0, 2)),
                *((0, k, "dropped", nan, "mean") for k in (1, 3)),
                *((1, k, "completed", nan, None) for k in (1, 2)),
                *((1, 0, "dropped", 2.0, "client"), (1, 3, "dropped", 1.0, "client")),
                *((2, 2, "completed", nan, None), (2, 0, "dropped", nan, "stored")),
                *((2, 1, "dropped", 2.0, "client"), (2, 3, "not_selected", nan, None)),
                *((3, 2, "completed", nan, None), (3, 1, "dropped", nan, "mean")),
            ]
        )
    )
    assert found.to_dict("records") == [
        {"strategy": "fdms", "missing": 7, "seen": 4, "nothing": 1, "client": 2, "stored": 1, "true": 0.5}
    ]
    shown = script.friends_table(pd.concat([found.assign(seed=1), found.assign(seed=2, true=1.0)]))
    assert shown["true friends"].tolist() == ["75.0% (50.0% to 100.0%)"]
    assert shown["seen"].tolist() == [8]


def test_the_cost_of_a_memory_is_its_paired_difference_to_the_whole_one() -> None:
    gaps = {"full": 0.0, "dropout": 5.0, "each": 1.0, "half": 1.0, "circles": 1.5, "fewest circles": 2.0}
    measured = pd.DataFrame(
        {"trial": "blackout", "seed": seed, "strategy": name, "mean_accuracy": 0.9 + seed / 100 - gap / 100}
        for seed in (1, 2, 3)
        for name, gap in gaps.items()
    )
    (row,) = script.memories_table(measured).to_dict("records")
    assert (row["dropout"], row["each"], row["circles"]) == ("5.00", "1.00", "1.50")
    assert row["half costs (95 %)"].startswith("0.00")
    assert row["circles costs (95 %)"] == "0.50 (0.50 to 0.50)"


def test_growth_is_that_of_a_repeats_own_rounds(tmp_path: Path) -> None:
    """A second start measures nothing twice."""
    asked = []

    def measured(clients: object, repeat: int) -> pd.DataFrame:
        asked.append((clients, repeat))
        took = (10.0 if clients == 10_000 else 12.0) * repeat
        rows = {"trial": clients, "seed": repeat, "strategy": ["fdms_memory"], "round_ms": took}
        return pd.DataFrame(rows | {"peak_gb": 1.0})

    sizes = [(size, repeat) for repeat in (1, 2) for size in (10_000, 1_000_000)]
    for _ in range(2):
        found = script.measure_missing(tmp_path / "rounds.csv", sizes, measured)
    assert asked == sizes
    (row,) = script.rounds_table(found).to_dict("records")
    assert row["grows by"] == "×1.20 (1.20 to 1.20)"
    assert row["10,000 clients, ms"] == "15.0"


@pytest.mark.slow
def test_memories_of_three_sizes_are_what_max_memory_gb_allows() -> None:
    """Two of five clusters go offline: whoever remembers them loses less."""
    found = script.memories_of("two of five clusters offline from 10 to 20 h", 1)
    accuracy = found.set_index("strategy")["mean_accuracy"]
    assert set(accuracy.index) == {"full", "dropout", *script.MEMORIES}
    assert accuracy["each"] != accuracy["circles"]
    assert accuracy["each"] > accuracy["dropout"]


@pytest.mark.slow
def test_friends_are_found_among_ten_thousand_clients() -> None:
    """Each missing client that was ever seen is represented; by signatures nearly always by a true friend."""
    found = script.friends_of(1).set_index("strategy")
    print(found)
    assert (found["seen"] > 500).all()
    assert found.loc["fdms by signatures", "client"] == found.loc["fdms by signatures", "seen"]
    assert found.loc["fdms by signatures", "true"] >= 0.95
    ours = found.loc["fdms_memory"]
    assert ours["true"] >= 0.95
    assert ours["nothing"] <= 0.01 * ours["seen"]


@pytest.mark.benchmark
def test_a_round_of_a_million_clients_takes_little_longer_than_one_of_ten_thousand() -> None:
    """The best of three turns each: a machine's pace may change between two of them."""
    turns = [
        [script.rounds_of(size, 1, [ONE_STRATEGY]).iloc[0] for size in (10_000, 1_000_000)] for _ in range(3)
    ]
    few_ms, many_ms = (min(turn[at]["round_ms"] for turn in turns) for at in (0, 1))
    peak_gb = max(turn[1]["peak_gb"] for turn in turns)
    print(f"\n{few_ms:.1f} ms, {many_ms:.1f} ms, {peak_gb:.2f} GB")
    assert peak_gb < 6.0
    assert many_ms <= 1.5 * few_ms
