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


def test_at_eighty_columns_there_is_still_a_bar() -> None:
    from fdsim.trace import Cause, Outcome, blank_round

    lost = blank_round(0, 4, 0.0, 120.0)
    lost.outcome[:] = Outcome.dropped
    lost.cause[:] = [Cause.battery_empty, Cause.battery_empty, Cause.link_lost, Cause.link_lost]
    with progress.Terminal(Console(file=io.StringIO(), force_terminal=True, width=80), rounds=240) as shown:
        shown._bars.update(shown._task, visible=True)
        shown.trace_round(lost)
        shown.strategy_begin("oracle_friends, the second of its kind", 3)
        shown.strategy_begin("oracle_friends, the third of its kind", 3)
        plain = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="standard")
        plain.print(shown._bars.get_renderable())
    lines = plain.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(lines) == 3
    assert all(line.count("━") + line.count("╸") + line.count("╺") >= 12 for line in lines)
    assert "100% dropped" in lines[0]
