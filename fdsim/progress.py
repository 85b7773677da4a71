"""The progress of a run: live bars on a terminal, plain lines elsewhere, nothing in tests."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Protocol

import numpy as np

from fdsim.trace import Cause, Outcome, Trace, TraceRound

if TYPE_CHECKING:
    from rich.console import Console

    from fdsim.prepare import Prepared
    from fdsim.telemetry.schema import RoundRow


class Progress(Protocol):
    """Is called at the moments of a run that someone may want to see."""

    def fleet_starts(self, prepared: Prepared) -> None: ...
    def fleet_time(self, t_s: float) -> None: ...
    def fleet_part(self, frac: float, simulated_to_s: float | None) -> None: ...
    def trace_round(self, trace_round: TraceRound) -> None: ...
    def fleet_ends(self, trace: Trace) -> None: ...
    def strategy_starts(self, label: str, next_round: int) -> None: ...
    def round_ends(self, label: str, row: RoundRow) -> None: ...
    def strategy_ends(self, label: str) -> None: ...
    def strategy_fails(self, label: str, message: str) -> None: ...


class Silent:
    """Shows nothing."""

    def fleet_starts(self, prepared: Prepared) -> None:
        return

    def fleet_time(self, t_s: float) -> None:
        return

    def fleet_part(self, frac: float, simulated_to_s: float | None) -> None:
        return

    def trace_round(self, trace_round: TraceRound) -> None:
        return

    def fleet_ends(self, trace: Trace) -> None:
        return

    def strategy_starts(self, label: str, next_round: int) -> None:
        return

    def round_ends(self, label: str, row: RoundRow) -> None:
        return

    def strategy_ends(self, label: str) -> None:
        return

    def strategy_fails(self, label: str, message: str) -> None:
        return


#: Where output is piped or logged, a step that takes longer than this reports its progress.
_QUIET_S = 10.0


class Terminal:
    """Shows bars that move on a terminal, and one plain line per step where output is piped or logged."""

    def __init__(self, console: Console, rounds: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars
        from rich.table import Column

        self._console, self._rounds = console, rounds
        self._live = console.is_terminal
        self._bars = Bars(
            TextColumn("{task.description:<16}", markup=False, table_column=Column(no_wrap=True)),
            BarColumn(bar_width=28 if console.width >= 110 else 12, table_column=Column(no_wrap=True)),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[note]}", markup=False),
            TimeElapsedColumn(table_column=Column(no_wrap=True)),
            console=console,
            disable=not self._live,
        )
        # What is left for the note beside name, bar, count and clock: without a limit the bar would give way to it.
        self._room = max(20, console.width - (16 + 1 + 12 + 1 + 2 * len(str(rounds)) + 2 + 1 + 8))
        self._task = (
            None if not self._live else self._bars.add_task("fleet", total=rounds, note="", visible=False)
        )
        self._causes: Counter[int] = Counter()
        self._dropped = self._selected = 0
        self._t_s = self._began_s = self._said_s = 0.0
        self._last: RoundRow | None = None

    def __enter__(self) -> Terminal:
        self._bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bars.stop()

    def _say(self, text: str) -> None:
        if not self._live:
            self._said_s = time.perf_counter()
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def fleet_starts(self, prepared: Prepared) -> None:
        """Open the fleet's bar."""
        self._began_s = time.perf_counter()
        source = "fleet" if prepared.scenario.fleet else "participation"
        self._say(f"{source}: {prepared.scenario.clients} clients, {self._rounds} rounds")
        if self._task is not None:
            self._bars.update(self._task, description=source, visible=True)

    def fleet_time(self, t_s: float) -> None:
        """Take the simulated time."""
        self._t_s = t_s

    def fleet_part(self, frac: float, simulated_to_s: float | None) -> None:
        """Report how much of a large fleet is built, or is simulated up to a time ahead of the clock."""
        done = "built" if simulated_to_s is None else f"simulated to {_clock(simulated_to_s)}"
        self._note(f"{frac:.0%} of the fleet {done}")

    def _note(self, note: str) -> None:
        """Put a note beside the bar, or print it where there is no bar and nothing was printed for a while."""
        if self._task is not None:
            self._bars.update(
                self._task, note=note if len(note) <= self._room else note[: self._room - 1] + "…"
            )
        elif time.perf_counter() - self._said_s > _QUIET_S:
            self._say(f"  {note}")

    def trace_round(self, trace_round: TraceRound) -> None:
        """Move the fleet's bar by one round, and count who dropped out and why."""
        self._causes.update(trace_round.cause[trace_round.outcome == Outcome.dropped].tolist())
        self._dropped += int(np.count_nonzero(trace_round.outcome == Outcome.dropped))
        self._selected += len(trace_round.selected)
        self._t_s = max(self._t_s, trace_round.round_end_s)
        if self._task is not None:
            self._bars.update(self._task, advance=1)
        self._note(self._fleet_note())

    def _fleet_note(self) -> str:
        rate = self._dropped / max(1, self._selected)
        worst = ", ".join(Cause(code).name for code, _ in self._causes.most_common(2) if code >= 0)
        return f"{_clock(self._t_s)}  {rate:.0%} dropped{': ' + worst if worst else ''}"

    def fleet_ends(self, trace: Trace) -> None:
        """Close the fleet's bar."""
        self._say(f"  {self._fleet_note()}  ({time.perf_counter() - self._began_s:.1f} s)")

    def strategy_starts(self, label: str, next_round: int) -> None:
        """Open a strategy's bar."""
        self._began_s, self._last = time.perf_counter(), None
        if self._live:
            name = shortened(label, 16)
            self._task = self._bars.add_task(name, total=self._rounds, completed=next_round, note="")
        elif next_round:
            self._say(f"{label}: continues from round {next_round}")

    def round_ends(self, label: str, row: RoundRow) -> None:
        """Move the strategy's bar."""
        if row.test_accuracy is not None:
            self._last = row
        if self._task is not None:
            self._bars.update(self._task, completed=row.round + 1, note=self._accuracy())

    def _accuracy(self) -> str:
        return "" if self._last is None else f"accuracy {self._last.test_accuracy:.3f}"

    def strategy_ends(self, label: str) -> None:
        """Close the strategy's bar."""
        self._say(f"{label}: {self._accuracy()}  ({time.perf_counter() - self._began_s:.1f} s)")

    def strategy_fails(self, label: str, message: str) -> None:
        """Report that a strategy failed."""
        self._console.print(
            f"{label}: failed: {message}", markup=False, highlight=False, soft_wrap=True, style="red"
        )


def shortened(text: str, most: int) -> str:
    """Cut a text in the middle, where names of one kind differ least, to at most so many characters."""
    if len(text) <= most:
        return text
    tail = (most - 1) // 2
    return text[: most - 1 - tail] + "…" + text[len(text) - tail :]


def _clock(t_s: float) -> str:
    days, rest = divmod(int(t_s), 86_400)
    return f"day {days + 1} {rest // 3600:02d}:{rest % 3600 // 60:02d}"
