"""Comparisons of made-up curves whose differences are known."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from fdsim.comparison.compare import Comparison, Question, compare
from fdsim.comparison.curves import Curves, curves_from, curves_of
from fdsim.comparison.output import display_table, latex, print_comparison, write_comparison
from fdsim.errors import InputError, StorageError

LEVEL = {"full": 0.6, "fdms": 0.57, "dropout": 0.5}


def world(seeds: int = 5, alphas: tuple[float, ...] = (0.3,), rounds: int = 20) -> pd.DataFrame:
    """Curves that rise to a level of the strategy's own, plus what the seed adds: the same for all strategies."""
    frames = []
    for alpha in alphas:
        for seed in range(seeds):
            luck = np.random.default_rng(seed).normal(0, 0.05)
            for strategy, level in LEVEL.items():
                gap = (0.6 - level) * alpha / 0.3
                rise = (1 - np.exp(-np.arange(1, rounds + 1) / 5)) * (0.6 - gap + luck)
                frames.append(
                    pd.DataFrame(
                        {
                            "strategy": strategy,
                            "seed": seed,
                            "alpha": alpha,
                            "round": range(rounds),
                            "sim_time_s": 60.0 * np.arange(1, rounds + 1),
                            "test_accuracy": rise,
                            "energy_j": 10.0,
                            "trace_hash": f"{alpha}-{seed}",
                        }
                    )
                )
    return pd.concat(frames, ignore_index=True)


def row(found: Comparison, arm: str, measure: str, **group: object) -> pd.Series:
    table = found.table
    chosen = (table[found.question.by] == arm) & (table["measure"] == measure)
    for name, value in group.items():
        chosen &= table[name] == value
    assert chosen.sum() == 1
    return table[chosen].iloc[0]


def test_an_interval_stays_where_the_measure_can_be() -> None:
    """Two seeds of accuracies near 1 and far apart: Student's t alone would say 1.6."""
    frame = world(seeds=2)
    frame["test_accuracy"] = np.where(frame["seed"] == 0, 0.99, 0.9) - 1e-4 * frame["round"]
    best = row(compare(curves_from(frame, rounds_planned=20)), "fdms", "best_accuracy")
    assert (best["low"], best["high"]) == (pytest.approx(0.945 - 12.706 * 0.045, abs=1e-3), 1.0)
    assert row(compare(curves_from(frame, rounds_planned=20)), "fdms", "fluctuation")["low"] >= 0


def test_known_differences_come_out() -> None:
    found = compare(curves_from(world(), rounds_planned=20))
    fdms = row(found, "fdms", "final_accuracy")
    reach = 1 - math.exp(-4)
    assert found.baseline == "dropout"
    assert fdms["difference"] == pytest.approx(0.07 * reach)
    assert fdms["gap_recovered"] == pytest.approx(0.7)
    assert fdms["pairs"] == 5
    assert bool(fdms["same_trace"])
    assert row(found, "full", "mean_accuracy")["gap_recovered"] == pytest.approx(1.0)
    assert math.isnan(row(found, "fdms", "fluctuation")["gap_recovered"])


def test_costs_count_those_who_never_arrive() -> None:
    found = compare(curves_from(world(), rounds_planned=20), Question(target_accuracy=0.55))
    dropout, full = row(found, "dropout", "rounds"), row(found, "full", "rounds")
    assert dropout["reached"] < full["reached"]
    assert dropout["n"] == full["n"] == 5
    assert dropout["restricted_mean"] > full["restricted_mean"]
    assert full["difference"] < 0
    assert row(found, "full", "energy_kj")["median"] == pytest.approx(full["median"] * 0.01)


def test_groups_are_compared_within_themselves() -> None:
    found = compare(curves_from(world(alphas=(0.3, 0.6)), settings=["alpha"], rounds_planned=20))
    near = row(found, "fdms", "final_accuracy", alpha=0.3)["difference"]
    far = row(found, "fdms", "final_accuracy", alpha=0.6)["difference"]
    assert far == pytest.approx(2 * near)
    assert found.groups == ("alpha",)


def test_a_setting_can_be_what_is_compared() -> None:
    curves = curves_from(world(alphas=(0.3, 0.6)), settings=["alpha"], rounds_planned=20)
    found = compare(curves, Question(by="alpha", against="0.3"))
    assert row(found, "0.6", "final_accuracy", strategy="dropout")["difference"] < -0.09
    assert row(found, "0.6", "final_accuracy", strategy="full")["difference"] == pytest.approx(0.0)
    assert not found.table["same_trace"].all()


def test_what_moves_with_the_arm_does_not_part_the_arms() -> None:
    """A case and the key it sets: arms of one group, not two groups of one arm."""
    table = world(alphas=(0.3, 0.6))
    table["case"] = table["alpha"].map({0.3: "near", 0.6: "far"})
    found = compare(curves_from(table, settings=["case", "alpha"], rounds_planned=20), Question(by="case"))
    assert found.groups == ("strategy",)
    assert row(found, "far", "final_accuracy", strategy="dropout")["pairs"] == 5


def test_a_curve_that_stopped_is_counted_and_not_averaged() -> None:
    whole = world()
    cut = whole[~((whole["strategy"] == "fdms") & (whole["seed"] == 2) & (whole["round"] > 8))]
    found = row(compare(curves_from(cut, rounds_planned=20)), "fdms", "final_accuracy")
    assert (found["repeats"], found["incomplete"], found["n"], found["pairs"]) == (5, 1, 4, 4)


def test_one_seed_gives_numbers_but_no_intervals() -> None:
    found = row(compare(curves_from(world(seeds=1), rounds_planned=20)), "fdms", "final_accuracy")
    assert found["difference"] > 0
    assert math.isnan(found["difference_t_low"])


def test_questions_that_make_no_sense() -> None:
    curves = curves_from(world(), rounds_planned=20)
    with pytest.raises(InputError, match="did you mean 'dropout'"):
        compare(curves, Question(against="dropuot"))
    with pytest.raises(InputError, match="there is no such column"):
        compare(curves, Question(by="gamma"))
    with pytest.raises(InputError, match="a second curve of 'full' with seed 0"):
        compare(Curves(pd.concat([curves.about] * 2, ignore_index=True), curves.curves * 2, ()))
    with pytest.raises(InputError, match="column 'seed' is missing"):
        curves_from(world().drop(columns="seed"))


def test_written_tables_read_back(tmp_path: Path) -> None:
    found = compare(curves_from(world(), rounds_planned=20))
    for name in ("a.csv", "a.parquet", "below/a.tex"):
        write_comparison(found, tmp_path / name)
    assert (
        len(pd.read_csv(tmp_path / "a.csv"))
        == len(pd.read_parquet(tmp_path / "a.parquet"))
        == len(found.table)
    )
    text = (tmp_path / "below" / "a.tex").read_text()
    assert text.count(r"\\") == 4
    assert r"\toprule" in text
    with pytest.raises(InputError, match=r"use \.csv, \.parquet or \.tex"):
        write_comparison(found, tmp_path / "a.xlsx")
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        write_comparison(found, tmp_path / "file" / "a.csv")


def test_names_are_escaped_and_markup_is_shown_as_written() -> None:
    table = world()
    table["strategy"] = table["strategy"].replace({"fdms": "[bold]a_b & 5%"})
    found = compare(curves_from(table, rounds_planned=20))
    assert r"[bold]a\_b \& 5\%" in latex(found)
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    print_comparison(found, console)
    console.file.close()
    assert "[bold]a_b & 5%" in console.export_text()


def test_the_terminal_table_fits_eighty_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_comparison(compare(curves_from(world(), rounds_planned=20)), Console(width=80))
    lines = capsys.readouterr().out.splitlines()
    tables = [line for line in lines if line[:1] in "┏┃┡│└"]
    assert max(map(len, tables)) <= 80
    assert any("+0.069 [+0.069, +0.069]" in line for line in tables)


def test_a_folder_that_is_neither_run_nor_study(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="neither a run nor a study"):
        curves_of([tmp_path])


def shown(found: Comparison) -> pd.DataFrame:
    return display_table(found, found.table).set_index("strategy")


def test_no_gap_is_recovered_where_none_is_established() -> None:
    """Full ahead of dropout on one seed and behind on another: a fraction of that gap would mean nothing."""
    table = world(seeds=4)
    noise = table["seed"].map({0: 0.3, 1: -0.28, 2: 0.2, 3: -0.25})
    table["test_accuracy"] += noise.where(table["strategy"] == "full", 0.0)
    found = compare(curves_from(table, rounds_planned=20))
    assert row(found, "fdms", "final_accuracy")["gap_low"] < 0
    assert shown(found)["gap recovered"].tolist() == ["–", "–", "–"]
    assert shown(compare(curves_from(world(), rounds_planned=20)))["gap recovered"]["fdms"] == "70%"
    assert shown(compare(curves_from(world(seeds=1), rounds_planned=20)))["gap recovered"]["fdms"] == "–"


@pytest.mark.parametrize(("joules", "unit"), [(1e-3, "J"), (10.0, "J"), (1e3, "kJ"), (1e7, "MJ")])
def test_energy_has_a_unit_that_shows_it(joules: float, unit: str) -> None:
    found = compare(curves_from(world().assign(energy_j=joules), rounds_planned=20))
    column = next(name for name in shown(found).columns if name.startswith(f"{unit} to "))
    if joules >= 1:
        assert float(shown(found)[column]["full"].split(" ")[0]) >= 1


def test_the_course_of_learning_is_compared_with_full() -> None:
    """Dropout halves its accuracy for five rounds of a minute each; full is at 0.5 all along."""
    rounds = pd.DataFrame({"round": range(30), "sim_time_s": 60.0 * np.arange(1, 31), "energy_j": 1.0})
    curves = [
        rounds.assign(strategy="full", seed=0, test_accuracy=0.5),
        rounds.assign(
            strategy="dropout", seed=0, test_accuracy=[0.25 if 15 <= r < 20 else 0.5 for r in range(30)]
        ),
    ]
    found = compare(curves_from(pd.concat(curves), rounds_planned=30))
    assert row(found, "dropout", "worst_accuracy")["mean"] == 0.25
    assert row(found, "dropout", "gap_to_full")["mean"] == pytest.approx(0.25 * 5 / 30)
    assert row(found, "dropout", "hours_below_full")["mean"] == pytest.approx(5 / 60)
    assert row(found, "full", "hours_below_full")["mean"] == 0
    assert shown(found)["worst after ⅓"]["dropout"] == "0.250"


def test_labels_of_anybodys_run_are_text_and_nothing_else(tmp_path: Path) -> None:
    """A formula in a CSV, a line that leaves a comment of LaTeX."""
    label = '=HYPERLINK("http://x")'
    rows = [
        {"strategy": s, "seed": 1, "round": r, "test_accuracy": 0.1 * r, "net": "a\n\\input{x}"}
        for s in ("dropout", label)
        for r in range(3)
    ]
    found = compare(curves_from(pd.DataFrame(rows), settings=["net"]))
    write_comparison(found, tmp_path / "t.csv")
    assert set(pd.read_csv(tmp_path / "t.csv")["strategy"]) == {"dropout", "'" + label}
    write_comparison(found, tmp_path / "t.tex")
    assert not any(line.startswith("\\input") for line in (tmp_path / "t.tex").read_text().splitlines())
