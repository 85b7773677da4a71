"""The progress of a run: live bars on a terminal and in notebooks, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from fdsim.telemetry.callback import Callback
from fdsim.trace import Cause, Outcome, Trace, TraceRound

if TYPE_CHECKING:
    from rich.console import Console

    from fdsim.scenario import Scenario
    from fdsim.telemetry.schema import RoundRow


#: Where output is piped or logged, a step that takes longer than this reports its progress.
_QUIET_S = 10.0


class Terminal(Callback):
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

    def trace_begin(self, scenario: Scenario) -> None:
        """Open the fleet's bar."""
        self._began_s = time.perf_counter()
        source = "fleet" if scenario.fleet else "participation"
        self._say(f"{source}: {scenario.clients} clients, {self._rounds} rounds")
        if self._task is not None:
            self._bars.update(self._task, description=source, visible=True)

    def trace_time(self, t_s: float) -> None:
        """Take the simulated time."""
        self._t_s = t_s

    def trace_part(self, frac: float, simulated_to_s: float | None) -> None:
        """Report how much of a large fleet is built, or is simulated up to a time ahead of the clock."""
        done = "built" if simulated_to_s is None else f"simulated to {_clock(simulated_to_s)}"
        self._note(f"{frac:.0%} of the fleet {done}")

    def trace_note(self, note: str) -> None:
        """Print a note of its own line."""
        self._console.print(f"  {note}", markup=False, highlight=False, soft_wrap=True)

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
        causes = trace_round.cause[trace_round.outcome == Outcome.dropped]
        codes, counts = np.unique(causes, return_counts=True)
        self._causes.update(dict(zip(codes.tolist(), counts.tolist(), strict=True)))
        self._dropped += len(causes)
        self._selected += len(trace_round.selected)
        self._t_s = max(self._t_s, trace_round.round_end_s)
        if self._task is not None:
            self._bars.update(self._task, advance=1)
        self._note(self._fleet_note())

    def _fleet_note(self) -> str:
        rate = self._dropped / max(1, self._selected)
        worst = ", ".join(Cause(code).name for code, _ in self._causes.most_common(2) if code >= 0)
        return f"{_clock(self._t_s)}  {rate:.0%} dropped{': ' + worst if worst else ''}"

    def trace_end(self, trace: Trace) -> None:
        """Close the fleet's bar."""
        self._say(f"  {self._fleet_note()}  ({time.perf_counter() - self._began_s:.1f} s)")

    def strategy_begin(self, label: str, next_round: int) -> None:
        """Open a strategy's bar."""
        self._began_s, self._last = time.perf_counter(), None
        if self._live:
            name = shortened(label, 16)
            self._task = self._bars.add_task(name, total=self._rounds, completed=next_round, note="")
        elif next_round:
            self._say(f"{label}: continues from round {next_round}")

    def round_end(self, label: str, row: RoundRow) -> None:
        """Move the strategy's bar."""
        if row.test_accuracy is not None:
            self._last = row
        if self._task is not None:
            self._bars.update(self._task, completed=row.round + 1, note=self._accuracy())

    def _accuracy(self) -> str:
        return "" if self._last is None else f"accuracy {self._last.test_accuracy:.3f}"

    def strategy_end(self, label: str, problem: str | None) -> None:
        """Close the strategy's bar, or report that the strategy failed."""
        if problem is None:
            self._say(f"{label}: {self._accuracy()}  ({time.perf_counter() - self._began_s:.1f} s)")
            return
        self._console.print(
            f"{label}: failed: {problem}", markup=False, highlight=False, soft_wrap=True, style="red"
        )


#: A notebook's bars are drawn again at most this often, s.
_REDRAWN_S = 0.1


class NotebookTable:
    """Bars in a notebook: HTML that is replaced while the work goes on. A row is (name, done, of how many, note)."""

    def __init__(self) -> None:
        self._shown: Any = None
        self._drawn_s = 0.0

    def draw(self, rows: Iterable[tuple[str, float, float, str]], *, now: bool = False) -> None:
        """Show the rows, unless others were shown just before; `now` shows them in any case."""
        from IPython.display import HTML, display

        if not now and time.perf_counter() - self._drawn_s < _REDRAWN_S:
            return
        self._drawn_s = time.perf_counter()
        drawn = HTML(f"<table>{''.join(map(self._row, rows))}</table>")
        if self._shown is None:
            self._shown = display(drawn, display_id=True)
        else:
            self._shown.update(drawn)

    def _row(self, row: tuple[str, float, float, str]) -> str:
        name, done, most, note = row
        bar = f'<progress value="{done:g}" max="{most:g}" style="width:16em"></progress>'
        return "<tr>" + "".join(f"<td>{cell}</td>" for cell in (escape(name), bar, escape(note))) + "</tr>"


class NotebookBars(Callback):
    """Shows a bar for the fleet and one per strategy in a notebook."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        #: name → (rounds done, note), in the order in which they began.
        self._bars: dict[str, tuple[int, str]] = {}
        self._table = NotebookTable()

    def _set(self, name: str, done: int, note: str, *, now: bool = False) -> None:
        self._bars[name] = done, note
        rows = [
            (name, done, self._rounds, f"{done}/{self._rounds} {note}")
            for name, (done, note) in self._bars.items()
        ]
        self._table.draw(rows, now=now)

    def trace_begin(self, scenario: Scenario) -> None:
        """Open the fleet's bar."""
        self._set("fleet", 0, "", now=True)

    def trace_part(self, frac: float, simulated_to_s: float | None) -> None:
        """Report how much of a large fleet is built or simulated ahead."""
        done = "built" if simulated_to_s is None else f"simulated to {_clock(simulated_to_s)}"
        self._set("fleet", self._bars["fleet"][0], f"{frac:.0%} of the fleet {done}")

    def trace_note(self, note: str) -> None:
        """Put a note beside the fleet's bar, until the first round."""
        self._set("fleet", self._bars["fleet"][0], note, now=True)

    def trace_round(self, trace_round: TraceRound) -> None:
        """Move the fleet's bar."""
        self._set("fleet", trace_round.round + 1, _clock(trace_round.round_end_s))

    def trace_end(self, trace: Trace) -> None:
        """Fill the fleet's bar."""
        self._set("fleet", trace.rounds, self._bars["fleet"][1], now=True)

    def strategy_begin(self, label: str, next_round: int) -> None:
        """Open a strategy's bar."""
        self._set(label, next_round, "", now=True)

    def round_end(self, label: str, row: RoundRow) -> None:
        """Move the strategy's bar."""
        note = self._bars[label][1] if row.test_accuracy is None else f"accuracy {row.test_accuracy:.3f}"
        self._set(label, row.round + 1, note)

    def strategy_end(self, label: str, problem: str | None) -> None:
        """Fill the strategy's bar, or say why it failed."""
        done, note = self._bars[label]
        self._set(label, done, note if problem is None else f"failed: {problem}", now=True)


def shortened(text: str, most: int) -> str:
    """Cut a text in the middle, where names of one kind differ least, to at most so many characters."""
    if len(text) <= most:
        return text
    tail = (most - 1) // 2
    return text[: most - 1 - tail] + "…" + text[len(text) - tail :]


def _clock(t_s: float) -> str:
    days, rest = divmod(int(t_s), 86_400)
    return f"day {days + 1} {rest // 3600:02d}:{rest % 3600 // 60:02d}"
