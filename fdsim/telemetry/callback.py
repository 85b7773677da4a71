"""Callbacks: what is told about a run while it goes on. Progress bars and TensorBoard are callbacks too.

    class Patience(fdsim.Callback):
        def round_end(self, label, row):
            if row.round == 50 and (row.test_accuracy or 0) < 0.2:
                raise RuntimeError(f"{label} learns nothing")

    fdsim.run("scenario.toml", callbacks=[Patience()])

A callback that raises stops the run, which can be resumed as after Ctrl-C; the error names the callback.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from inspect import getattr_static, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fdsim.errors import CallbackError, InputError

if TYPE_CHECKING:
    from fdsim.scenario import Scenario
    from fdsim.telemetry.schema import RoundRow
    from fdsim.trace import Trace, TraceRound


class Callback:
    """Is called at the moments of a run; each method does nothing unless overridden.

    The order: run_begin → trace_begin → trace_round for each round → trace_end → for each strategy: strategy_begin →
    (round_begin → round_end) for each round → strategy_end → run_end. A run that is resumed tells only what is left
    of it. Nothing a callback does may change what is learned: what it is given is read-only.
    """

    def run_begin(self, scenario: Scenario, folder: Path) -> None:
        """A run begins, or is resumed, in `folder`."""

    def trace_begin(self, scenario: Scenario) -> None:
        """The fleet, or another source of participation, is about to be simulated; not told where the trace exists."""

    def trace_time(self, t_s: float) -> None:
        """The fleet's clock has reached a simulated time."""

    def trace_part(self, frac: float, simulated_to_s: float | None) -> None:
        """A fraction of a large fleet is built (None), or simulated to a time ahead of the clock."""

    def trace_note(self, note: str) -> None:
        """Something about how the trace is made that a person may want to know, in words."""

    def trace_round(self, trace_round: TraceRound) -> None:
        """A round of the trace is known: who completed, who dropped out and why."""

    def trace_end(self, trace: Trace) -> None:
        """The trace is on disk."""

    def strategy_begin(self, label: str, next_round: int) -> None:
        """A strategy begins to learn at `next_round`, which is above 0 when it continues."""

    def round_begin(self, label: str, round_index: int) -> None:
        """A round of learning begins."""

    def round_end(self, label: str, row: RoundRow) -> None:
        """A round of learning ended; `row` is its row of the rounds table (row.round, row.test_accuracy, …)."""

    def strategy_end(self, label: str, problem: str | None) -> None:
        """A strategy has learned all its rounds, or has failed for good (it diverged, say) with a problem."""

    def run_end(self, folder: Path, error: BaseException | None) -> None:
        """The run is complete, or stops early with an error (KeyboardInterrupt among them)."""


#: The methods of a callback, one for each moment.
MOMENTS = tuple(name for name in vars(Callback) if not name.startswith("_"))


def refuse_deaf(callback: Any) -> None:
    """Raise an error when a callback, or a class of them, would be told of nothing, or a moment's name is misspelt."""
    kind = callback if isinstance(callback, type) else type(callback)
    place = f"callbacks, {kind.__qualname__}"
    for name in _public_methods(callback, kind):
        meant = None if name in MOMENTS else _moment_like(name)
        if meant is not None:
            remedy = f"did you mean '{meant}'? A method for other uses may begin with an underscore"
            raise InputError(place, f"'{name}' is no moment of a run, and would never be called", remedy)
    if not any(_listens(callback, kind, moment) for moment in MOMENTS):
        raise InputError(
            place, "it has no method that a run would call", f"give it one of: {', '.join(MOMENTS)}"
        )


def refuse_arguments(kind: Callable[..., Any], *, remedy: str) -> None:
    """Raise an error when an object of a callback's class cannot be made without arguments."""
    try:
        signature(kind).bind()
    except TypeError as error:
        raise InputError(
            f"callbacks, {kind.__qualname__}", f"its constructor needs more ({error})", remedy
        ) from None


def _public_methods(callback: Any, kind: type) -> list[str]:
    names = {*dir(kind), *getattr(callback, "__dict__", ())}
    return sorted(n for n in names if n[0] != "_" and callable(getattr_static(callback, n, None)))


def _moment_like(name: str) -> str | None:
    """Return the moment that a name resembles: on_round_end, roundEnd, end_round, round_ends."""
    bare = name.removeprefix("on_").removeprefix("on")
    plain = {moment.replace("_", ""): moment for moment in MOMENTS}
    turned = "".join(reversed(bare.lower().split("_")))
    close = get_close_matches(bare.lower().replace("_", ""), plain, n=1, cutoff=0.85)
    return plain.get(turned) or (plain[close[0]] if close else None)


def _listens(callback: Any, kind: type, moment: str) -> bool:
    """Whether a moment has a method other than the one of `Callback`, which does nothing."""
    idle = getattr(kind, moment, None) is getattr(Callback, moment)
    return moment in getattr(callback, "__dict__", ()) or (hasattr(callback, moment) and not idle)


class Callbacks(Callback):
    """Many callbacks as one; what lacks a method is not told. One that raises is named."""

    def __init__(self, callbacks: Sequence[Any] = ()) -> None:
        self._callbacks = tuple(callbacks)

    def _tell(self, moment: str, *about: Any) -> None:
        for callback in self._callbacks:
            method = getattr(callback, moment, None)
            if method is None:
                continue
            try:
                method(*about)
            except Exception as error:
                name = f"{type(callback).__qualname__}.{moment}"
                raise CallbackError(f"callback {name}: {type(error).__name__}: {error}") from error

    @contextmanager
    def during(self, scenario: Scenario, folder: Path) -> Iterator[None]:
        """Tell of a run's begin, and of its end however it ends."""
        try:
            self.run_begin(scenario, folder)
            yield
        except BaseException as error:
            # Every callback may close what it opened, and none of them hides why the run stopped.
            for callback in self._callbacks:
                try:
                    Callbacks([callback]).run_end(folder, error)
                except CallbackError as another:
                    error.add_note(str(another))
            raise
        self.run_end(folder, None)

    def run_begin(self, scenario: Scenario, folder: Path) -> None:
        self._tell("run_begin", scenario, folder)

    def trace_begin(self, scenario: Scenario) -> None:
        self._tell("trace_begin", scenario)

    def trace_time(self, t_s: float) -> None:
        self._tell("trace_time", t_s)

    def trace_part(self, frac: float, simulated_to_s: float | None) -> None:
        self._tell("trace_part", frac, simulated_to_s)

    def trace_note(self, note: str) -> None:
        self._tell("trace_note", note)

    def trace_round(self, trace_round: TraceRound) -> None:
        self._tell("trace_round", trace_round)

    def trace_end(self, trace: Trace) -> None:
        self._tell("trace_end", trace)

    def strategy_begin(self, label: str, next_round: int) -> None:
        self._tell("strategy_begin", label, next_round)

    def round_begin(self, label: str, round_index: int) -> None:
        self._tell("round_begin", label, round_index)

    def round_end(self, label: str, row: RoundRow) -> None:
        self._tell("round_end", label, row)

    def strategy_end(self, label: str, problem: str | None) -> None:
        self._tell("strategy_end", label, problem)

    def run_end(self, folder: Path, error: BaseException | None) -> None:
        self._tell("run_end", folder, error)
