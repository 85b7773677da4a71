"""Statistics of on/off intervals against hand-counted examples."""

from __future__ import annotations

import numpy as np
import pytest

from fdsim.trace.sessions import Observation, leave_within, session_stats

DAY = 86_400.0


def test_sessions_by_hand() -> None:
    """One device on 0–6 h of one day, one never."""
    on = Observation(0.0, DAY, np.array([[0.0, 6 * 3600.0]]))
    off = Observation(0.0, DAY, np.empty((0, 2)))
    found = session_stats([on, off])
    assert (found.mean_frac, found.never_frac) == (0.125, 0.5)
    assert found.by_hour == (0.5,) * 6 + (0.0,) * 18
    assert found.leave_within[600.0] == pytest.approx(600 / 21_600)
    assert leave_within(np.array([100.0, 300.0]), 200.0) == pytest.approx(150 / 200)
