"""How workers are used: a plan worked out by hand, and events on a clock that is set by hand."""

from __future__ import annotations

import pytest

from fdsim.studies.executors.base import Advanced, Ended, Failed, Started
from fdsim.studies.worker_use import WorkerClock, peak_mb, planned_use


def test_a_plan_worked_out_by_hand() -> None:
    """Both start for 2 s. One works 5 and 1, the other 3 and 2: 8 and 7 s, of which 11 of 16 are work."""
    use = planned_use([5.0, 3.0, 2.0, 1.0], 2, start_s=2.0, peak_mb=300.0)
    assert (use.workers, use.whole_s, use.first_s, use.peak_mb) == (2, 8.0, 2.0, 300.0)
    assert use.idle_frac == pytest.approx(5 / 16)


def test_more_workers_than_trials_are_not_counted() -> None:
    use = planned_use([4.0], 8, start_s=1.0, peak_mb=None)
    assert (use.workers, use.whole_s, use.idle_frac) == (1, 5.0, pytest.approx(0.2))
    assert str(use) == "the first trial under way after 1.0 s, workers idle 20%"


def test_events_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers for 10 s; trials of 7 and 8 s; the first sign of progress after 3 s."""
    now = [100.0]
    monkeypatch.setattr("fdsim.studies.worker_use.time.monotonic", lambda: now[0])
    clock = WorkerClock()
    clock.take(Started("a", "worker 0"))
    assert clock.use(2) is None
    for t_s, event in (
        (103.0, Advanced("a", 0.1)),
        (108.0, Ended("a", 7.0, 250.0)),
        (109.0, Failed("c", "no")),
        (110.0, Ended("b", 8.0, 400.0)),
    ):
        now[0] = t_s
        clock.take(event)
    use = clock.use(2)
    assert use is not None
    assert (use.whole_s, use.first_s, use.peak_mb) == (10.0, 3.0, 400.0)
    assert use.idle_frac == pytest.approx(0.25)


def test_a_process_knows_its_memory() -> None:
    used = peak_mb()
    assert used is None or 10.0 < used < 100_000.0
