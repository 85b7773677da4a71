"""Tables and figures of the paper's experiments, from a tiny folder of runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[2]


def _script(name: str, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "analysis" / name), *map(str, words)]
    return subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": "", "HOME": "/tmp"},
    )


def test_every_figure_is_drawn_as_pdf_and_png(small_paper: Path, tmp_path: Path) -> None:
    done = _script("paper_figures.py", small_paper, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    names = {
        "clustered",
        "released",
        "local_work",
        "clients",
        "fedprox",
        "general",
        "similarity",
        "reduction",
    }
    assert {path.name for path in tmp_path.iterdir()} == {f"{n}.{e}" for n in names for e in ("png", "pdf")}
    for path in tmp_path.glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.stat().st_size > 10_000


def test_tables_hold_means_over_the_seeds_and_share_full_between_alphas(
    small_paper: Path, tmp_path: Path
) -> None:
    done = _script("paper_tables.py", small_paper, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    final = pd.read_csv(tmp_path / "final.csv")
    main = final[
        (final["experiment"] == "mnist-clustered")
        & (final["clients"] == 20)
        & (final["local_work"] == "2 steps")
        & (final["proximal_mu"] == 0)
    ].set_index(["alpha", "strategy"])
    assert set(main.index) == {(a, s) for a in (0.5, 0.7) for s in ("full", "fdms", "dropout")} | {
        (0.5, "fdms, case 2")
    }
    assert (main.drop(index=(0.5, "fdms, case 2"))["seeds"] == 2).all()
    assert main.loc[(0.5, "full"), "final_mean"] == main.loc[(0.7, "full"), "final_mean"]
    assert main["final_mean"].between(0, 1).all()
    by_hand = []
    for seed in (1, 2):
        rounds = pd.read_parquet(small_paper / f"a7s{seed}" / "rounds")
        rows = rounds[(rounds["strategy"].astype(str) == "fdms") & (rounds["round"] == 9)]
        by_hand.append(rows["test_accuracy"].item())
    assert main.loc[(0.7, "fdms"), "final_mean"] == pytest.approx(sum(by_hand) / 2, rel=1e-4)
    assert (tmp_path / "rounds_to.md").read_text().startswith("| experiment |")


def test_curves_of_runs_made_elsewhere_are_taken_in_where_they_are_new(
    small_paper: Path, tmp_path: Path
) -> None:
    assert _script("paper_tables.py", small_paper, "--out", tmp_path / "first").returncode == 0
    curves = pd.read_csv(tmp_path / "first" / "curves.csv")
    curves[curves["strategy"] == "dropout"].assign(seed=9).to_csv(tmp_path / "more.csv", index=False)
    pd.concat([pd.read_csv(tmp_path / "more.csv"), curves.assign(accuracy=0.0)]).to_csv(
        tmp_path / "also.csv", index=False
    )
    words = (small_paper, "--out", tmp_path / "second", "--also", tmp_path / "also.csv")
    done = _script("paper_tables.py", *words)
    assert done.returncode == 0, done.stderr
    keys = ["experiment", "clients", "alpha", "local_work", "proximal_mu", "shards", "strategy"]
    first, second = (
        pd.read_csv(tmp_path / name / "final.csv").set_index(keys) for name in ("first", "second")
    )
    more = second["seeds"] - first["seeds"]
    assert (more[more.index.get_level_values("strategy") == "dropout"] == 1).all()
    others = second.index.get_level_values("strategy") != "dropout"
    assert (second[others]["final_mean"] == first[others]["final_mean"]).all()


def test_full_is_the_same_at_every_alpha(small_paper: Path, tmp_path: Path) -> None:
    """What the tables rest on: nobody is missing in Full, so the share of missing clients does not touch it."""
    from fdsim.pipeline import run_scenario
    from fdsim.scenario import load_scenario

    overrides = ["seed=2", "participation.alpha=0.7", 'strategies=[{kind="full"}]']
    run_scenario(load_scenario(ROOT / "tests/analysis/small_paper.toml", overrides), tmp_path / "run")
    other = pd.read_parquet(tmp_path / "run" / "rounds")["test_accuracy"].to_list()
    rounds = pd.read_parquet(small_paper / "a5s2" / "rounds")
    same = rounds[rounds["strategy"].astype(str) == "full"]["test_accuracy"].to_list()
    assert pd.Series(same).equals(pd.Series(other))


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    done = _script("paper_tables.py", tmp_path, "--out", tmp_path / "out")
    assert done.returncode == 1
    assert "no run with a finished strategy" in done.stderr
    assert "Traceback" not in done.stderr
