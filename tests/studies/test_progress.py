"""What is shown while a study runs: counts and time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from fdsim.progress import NotebookTable
from fdsim.studies.notebook import StudyNotebook
from fdsim.studies.plan import StudyPlan, plan_study
from fdsim.studies.progress import RemainingTime, StudyProgress, StudyTerminal, duration, told_apart
from fdsim.studies.study_file import load_study
from fdsim.studies.worker_use import WorkerUse


@pytest.fixture
def plan(write_study: Any) -> StudyPlan:
    return plan_study(load_study(write_study('[study]\nbase = "base.toml"\nseeds = 4\n')))


def _live_through(plan: StudyPlan, progress: StudyProgress) -> None:
    first, second, third, fourth = plan.trials
    progress.begins(plan, [first])
    progress.trial_starts(second, "worker 0")
    progress.trial_advances(second, 0.5)
    progress.ticks()
    progress.trial_ends(second, 1.25)
    progress.trial_starts(third, "worker 0")
    progress.trial_fails(third, "out of [memory]", again=True)
    progress.trial_starts(third, "worker 1")
    progress.trial_starts(fourth, "worker 0")
    progress.ticks()
    progress.trial_fails(third, "out of [memory]", again=False)
    progress.trial_ends(fourth, 2.0, ("fdms",))
    progress.ends([(third, "out of [memory]")], WorkerUse(2, 75.0, 2.25, 0.125, 400.0))


def _show(plan: StudyPlan, *, terminal: bool) -> str:
    out = io.StringIO()
    with StudyTerminal(Console(file=out, force_terminal=terminal, width=120)) as progress:
        _live_through(plan, progress)
    return out.getvalue()


def test_elsewhere_each_trial_is_a_line(plan: StudyPlan) -> None:
    lines = _show(plan, terminal=False).splitlines()
    assert lines[0] == "1 of 4 trials already complete"
    assert lines[1].startswith("[2/4] seed=2: complete (1.2 s), about ")
    assert lines[2] == "seed=3: failed, will be retried: out of [memory]"
    assert lines[3] == "seed=3: failed permanently: out of [memory]"
    assert lines[4] == "[3/4] seed=4: complete, but failed: fdms (2.0 s)"
    assert lines[5] == (
        "2 at a time: 75 s, the first trial under way after 2.2 s, workers idle 12%, 400 MB a worker"
    )
    assert lines[6].startswith("failed: seed=3")
    assert "\x1b" not in "".join(lines)


def test_a_notebook_shows_a_bar_for_the_study_and_for_each_trial(
    plan: StudyPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[list[tuple[str, float, float, str]]] = []
    monkeypatch.setattr(NotebookTable, "draw", lambda self, rows, **how: drawn.append(list(rows)))
    _live_through(plan, StudyNotebook())
    assert drawn[0] == [("study", 1.0, 4.0, "1/4 trials")]
    assert drawn[2][1:] == [("seed=2", 0.5, 1.0, "")]
    study, incomplete, failed = drawn[-1]
    assert study[:3] == ("study", 4.0, 4.0)
    assert study[3].startswith(
        "3/4 trials, 1 failed, the first trial under way after 2.2 s, workers idle 12%"
    )
    assert incomplete == ("seed=4", 1.0, 1.0, "complete, but failed: fdms")
    assert failed == ("seed=3", 1.0, 1.0, "failed: out of [memory]")


def test_a_terminal_shows_the_whole_study(plan: StudyPlan) -> None:
    shown = _show(plan, terminal=True)
    assert "3/4 done, 0 running, 1 failed" in shown
    assert "\x1b" in shown


def test_time_left_counts_work_and_not_trials(plan: StudyPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four equal trials, one known before: after 10 s one and a half of three are done, so 10 s are left."""
    clock = [100.0]
    monkeypatch.setattr("fdsim.studies.progress.time.monotonic", lambda: clock[0])
    remaining = RemainingTime(plan, plan.trials[:1])
    assert remaining.seconds_left is None
    clock[0] = 110.0
    remaining.end(plan.trials[1])
    remaining.advance(plan.trials[2], 0.5)
    assert remaining.seconds_left == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("seconds", "said"), [(5, "5 s"), (600, "10 min"), (9000, "2.5 h"), (259_200, "3.0 days")]
)
def test_durations_in_the_units_people_use(seconds: float, said: str) -> None:
    assert duration(seconds) == said


LONG = [
    f"proximal partition=clustered(clusters=5,labels_per_cluster=2) learning_rate={rate} alpha={alpha} seed={seed}"
    for rate in (0.05, 0.1)
    for alpha in (0.3, 0.5)
    for seed in range(1, 6)
]


@pytest.mark.parametrize("most", [16, 22, 40, 200])
def test_shortened_names_of_trials_stay_different(most: int) -> None:
    short = told_apart(LONG, most)
    assert len(set(short)) == len(LONG)
    assert max(map(len, short)) <= max(most, 0)


def test_words_that_all_trials_share_go_first() -> None:
    assert told_apart(LONG, 45)[0] == "learning_rate=0.05 alpha=0.3 seed=1"
    assert told_apart(LONG, 200) == LONG


def test_at_eighty_columns_there_is_still_a_bar(write_study: Any) -> None:
    text = '[study]\nbase = "base.toml"\nseeds = 3\n[study.grid]\n"training.learning_rate" = [0.05, 0.1]\n'
    trials = plan_study(load_study(write_study(text)))
    out = io.StringIO()
    with StudyTerminal(Console(file=out, force_terminal=True, width=80)) as progress:
        progress.begins(trials, [])
        for trial in trials.trials[:3]:
            progress.trial_starts(trial, "worker 0")
            progress.trial_advances(trial, 0.5)
        progress.ticks()
        shown = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="standard")
        shown.print(progress._bars.get_renderable())
    lines = shown.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(lines) == 4
    assert all(line.count("━") + line.count("╸") + line.count("╺") >= 12 for line in lines)
    assert len({line.split("━")[0] for line in lines}) == 4
