"""The tables of friends with memory say what was measured, and go on where they stopped."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "analysis"))

import friends_with_memory as script


def made_up(gap_of_ours: float) -> pd.DataFrame:
    """Five seeds of two trials: Full at .9, stale two points below, the others ten, ours as asked."""
    gaps = dict.fromkeys(script.STRATEGIES, 10.0) | {"full": 0.0, "stale": 2.0, script.OURS: gap_of_ours}
    rows = [
        {
            "trial": trial,
            "seed": seed,
            "strategy": name,
            "mean_accuracy": 0.9 - gap / 100 + (0.001 * (seed % 2) if name == script.OURS else 0.0),
            "worst_after_third": 0.8 - gap / 100,
            "rank_correlation": 0.7,
            "predicted_to_measured": 1.1,
        }
        for trial in ("no_friend", "outage")
        for seed in range(1, 6)
        for name, gap in gaps.items()
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(("gap", "verdict"), [(1.0, "smaller"), (2.05, "level"), (4.0, "larger")])
def test_the_verdict_is_that_of_the_paired_interval(gap: float, verdict: str) -> None:
    shown = script.table(made_up(gap))
    assert shown["scenario"].tolist() == ["outage", "no_friend"]
    assert set(shown["verdict"]) == {verdict}
    assert set(shown["best other"]) == {"stale"}
    assert shown["stale"].tolist() == ["2.00", "2.00"]
    assert script.markdown(shown).count("\n") == 4
    assert len(script.draw(made_up(gap)).axes) == 9


def test_a_trial_has_a_row_for_every_strategy_and_is_not_measured_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = script.measure("no_friend", 1, overrides=["rounds=4"])
    assert rows["strategy"].tolist() == script.STRATEGIES
    assert rows["mean_accuracy"].between(0, 1).all()
    assert np.isfinite(rows.set_index("strategy").loc[script.OURS, "rank_correlation"])
    monkeypatch.setattr(script, "TRIALS", {"no_friend": ("no_friend", [])})
    asked = []

    def measured(trial: str, seed: int, strategies: list[str]) -> pd.DataFrame:
        asked.append((seed, strategies))
        return rows[rows["strategy"].isin(strategies)].assign(seed=seed)

    monkeypatch.setattr(script, "measure", measured)
    path = tmp_path / "table.csv"
    first = script.measure_missing(path, range(1, 3))
    assert script.measure_missing(path, range(1, 3)).equals(first)
    assert asked == [(1, script.STRATEGIES), (2, script.STRATEGIES)]
    # Without the rows of one strategy, only that one is measured again.
    first[first["strategy"] != script.OURS].to_csv(path, index=False)
    again = script.measure_missing(path, range(1, 3))
    assert asked[2:] == [(1, [script.OURS]), (2, [script.OURS])]
    assert len(again) == len(first)
