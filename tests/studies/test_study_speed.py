"""What a study gains from a second core: the ratio of two ways to run the same trials, measured side by side."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from fdsim.distributed.cluster import usable_cores
from fdsim.studies.launch import StudyChoices, run_plan
from fdsim.studies.plan import plan_study
from fdsim.studies.study_file import load_study

#: 24 trials of a second or two each: long enough for work to count, short enough for starting up to count as well.
STUDY = """
[study]
base = "quickstart.toml"
seeds = 6
[study.grid]
"training.learning_rate" = [0.05, 0.1]
[study.cases.plain]
[study.cases.near]
"training.proximal_mu" = 0.1
"""
QUICKSTART = Path(__file__).resolve().parent.parent.parent / "scenarios" / "quickstart.toml"


@pytest.mark.benchmark
@pytest.mark.skipif(usable_cores() < 2, reason="there is one core")
def test_a_study_uses_both_cores(tmp_path: Path, tables_of: Any, same_tables: Any) -> None:
    """24 trials on two workers take at most 0.6 of the time they take one after another in one process."""
    (tmp_path / "quickstart.toml").write_text(QUICKSTART.read_text())
    (tmp_path / "study.toml").write_text(STUDY)
    plan = plan_study(load_study(tmp_path / "study.toml", ["rounds=20"]))
    assert len(plan.trials) == 24

    took_s = {}
    for workers in (2, 1):
        began_s = time.perf_counter()
        run_plan(plan, tmp_path / str(workers), StudyChoices(workers=workers))
        took_s[workers] = time.perf_counter() - began_s
    ratio = took_s[2] / took_s[1]
    print(f"24 trials: {took_s[1]:.1f} s in one process, {took_s[2]:.1f} s in two: ratio {ratio:.2f}")
    same_tables(tables_of(tmp_path / "2"), tables_of(tmp_path / "1"))
    assert ratio <= 0.6
