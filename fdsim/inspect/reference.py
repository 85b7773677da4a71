"""Compare a trace with the reference model of the fleet, column by column.

Outcome, cause, phase and network must be equal, instants agree within a nanosecond, energy and charge within a
millionth. Durations and charges are stored in single precision, whose last digit may round either way; so may the last
byte of a transfer that was broken off.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fdsim.trace import TraceRound, open_trace
from fdsim.trace.round import CLIENT_COLUMNS, ENUMS

#: How far instants may lie apart, s, and energy and charge, relative.
SAME_TIME_S, SAME_FRAC = 1e-9, 1e-6
_INSTANTS = ("start_s", "end_s")
_FLOAT32_FRAC = 2.0**-23


@dataclass
class ReferenceComparison:
    """What has been compared so far, and the first difference, if any."""

    rounds: int = 0
    rows: int = 0
    """Rows of selected clients."""
    largest: dict[str, float] = field(default_factory=dict)
    """Column → the largest difference met: seconds, bytes, or relative for energy, charge and progress."""
    difference: str | None = None

    @property
    def largest_time_s(self) -> float:
        """The largest difference between two instants, s."""
        return max((self.largest.get(name, 0.0) for name in ("round_end_s", *_INSTANTS)), default=0.0)

    def add(self, made: TraceRound, reference: TraceRound) -> bool:
        """Compare one more round; return whether it agrees."""
        self.rounds += 1
        self.rows += len(reference.selected)
        for name in ("round_start_s", "round_end_s"):
            value, expected = getattr(made, name), getattr(reference, name)
            self._note(name, abs(value - expected))
            if not abs(value - expected) <= SAME_TIME_S:
                self.difference = (
                    f"round {made.round}, {name}: {value} is recorded, {expected} by the reference"
                )
                return False
        # The first client that differs, and of its columns the first in the order of the table: causes before times.
        found = {name: self._unequal(name, made, reference) for name in CLIENT_COLUMNS}
        differing = np.flatnonzero(np.any(list(found.values()), axis=0))
        if not len(differing):
            return True
        client = int(differing[0])
        column = next(name for name in CLIENT_COLUMNS if found[name][client])
        values = [_shown(column, getattr(one, column)[client]) for one in (made, reference)]
        self.difference = f"round {made.round}, client {client}, {column}: {values[0]} is recorded, {values[1]} by the reference"
        return False

    def _unequal(self, name: str, made: TraceRound, reference: TraceRound) -> np.ndarray:
        """[K] whether the values of a column differ by more than they may."""
        value, expected = getattr(made, name), getattr(reference, name)
        if name in ENUMS:
            return np.asarray(value != expected)
        value, expected = value.astype(np.float64), expected.astype(np.float64)
        apart = np.where(np.isnan(value) & np.isnan(expected), 0.0, np.abs(value - expected))
        size = np.nan_to_num(np.abs(expected))
        if name in _INSTANTS:
            allowed = np.full(len(size), SAME_TIME_S)
        elif name.endswith("_s"):
            allowed = SAME_TIME_S + _FLOAT32_FRAC * size
        elif name.startswith("bytes"):
            allowed = np.ones(len(size))
        else:
            apart, allowed = apart / np.maximum(size, 1.0), np.full(len(size), SAME_FRAC)
        self._note(name, float(np.nan_to_num(apart, nan=np.inf).max(initial=0.0)))
        return np.asarray(~(apart <= allowed))

    def _note(self, name: str, apart: float) -> None:
        self.largest[name] = max(apart, self.largest.get(name, 0.0))


def _shown(column: str, value: float) -> object:
    if column not in ENUMS:
        return value
    return ENUMS[column](int(value)).name if value >= 0 else "none"


def compare_with_reference(
    made: Iterable[TraceRound], reference: Iterable[TraceRound]
) -> ReferenceComparison:
    """Compare the rounds of a trace with those of the reference, up to the first that differs."""
    comparison = ReferenceComparison()
    for one, other in zip(made, reference, strict=True):
        if not comparison.add(one, other):
            break
    return comparison


def verify_reference(path: Path | str, *, code: Path | None = None) -> ReferenceComparison:
    """Simulate a run's fleet by the reference model and compare the run's trace with it; `code` as in `verify_run`."""
    from fdsim.inspect.verify import check_hashes, trusted_scenario
    from fdsim.prepare import prepare
    from fdsim.run import reference_rounds
    from fdsim.telemetry.reader import open_run

    run = open_run(path)
    check_hashes(run)
    return compare_with_reference(
        open_trace(run.path / "trace.parquet"), reference_rounds(prepare(trusted_scenario(run, code)))
    )
