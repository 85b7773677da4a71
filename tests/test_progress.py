"""What a run prints while it is running, where there is no terminal to draw bars on."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from fdsim import progress


@pytest.mark.parametrize(
    ("quiet_s", "expected"),
    [
        (-1.0, "  40% of the fleet built\n  80% of the fleet simulated to day 2 01:30\n"),
        (3600.0, ""),
    ],
    ids=["when a step takes long", "not when it does not"],
)
def test_piped_output_says_how_far_a_long_step_is(
    quiet_s: float, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_QUIET_S", quiet_s)
    out = io.StringIO()
    with progress.Terminal(Console(file=out, width=120), rounds=3) as shown:
        shown._say("")
        shown.trace_part(0.4, None)
        shown.trace_part(0.8, 91_800.0)
    assert out.getvalue() == "\n" + expected
