"""A fleet in blocks: where devices share nothing, each lives through all rounds by itself, and is then let go.

A block is a range of clients. Its devices are built, lived through and forgotten one after the other, so that memory
is that of the block's rows, however large the fleet; blocks may be lived through anywhere and in any order, and only
those clients that some round selects are built at all. A finished block is a file with the rows of every round, from
which `merged` makes the rounds of the whole fleet: the trace of the world, to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fdsim.devices.config.simulation import SimulationConfig, check
from fdsim.devices.engine import gc_pause
from fdsim.devices.engine.assembly import abandon_below_quorum, devices_of, request_of, selected_of
from fdsim.devices.engine.local_round import LocalRound, LocalRoundResult
from fdsim.devices.engine.lookahead import closed_form_ends, is_possible, live_through, rounds_by_client
from fdsim.devices.engine.round_ledger import RoundLedger
from fdsim.trace import TraceRound

#: The most rows of a block, on average (14 to 100 B each); so many that starting one costs nothing beside them.
MOST_ROWS = 500_000


def shared(config: SimulationConfig) -> str | None:
    """Return what makes the life of a device depend on others, in words; None if nothing does."""
    server = config.server
    if server.selection.pool == "eligible":
        return 'selection.pool = "eligible" asks all devices at the start of a round'
    if server.over_selection > 1.0:
        return "over_selection closes a round for all when enough have reported"
    if not is_possible(config):
        return "a round may last until the next (deadline_s against round_interval_s), which then starts late"
    cells = {cell.name for cell in config.cells}
    for group in config.fleet:
        if group.cell in cells:
            return f"devices divide the bandwidth of cell '{group.cell}'"
    return None


@dataclass(frozen=True)
class Block:
    """Clients `first` to `last` − 1 of a fleet, and whom of them each round selects."""

    first: int
    last: int
    selected: tuple[np.ndarray | None, ...]
    """For each round [S] clients, ascending; None where it selects everybody."""


class Blocks:
    """The plan of a fleet: who is selected when, and which clients make a block."""

    def __init__(self, config: SimulationConfig, *, at_least: int = 1) -> None:
        check(config)
        self.config = config
        everybody = np.arange(config.devices)
        #: For each round the selected clients, None for everybody: 4 B a row of the trace.
        self._selected: list[np.ndarray | None] = []
        self.rows = 0
        for round_index in range(config.rounds):
            selected = selected_of(config, round_index, everybody)
            self.rows += len(selected)
            all_of_them = len(selected) == config.devices
            self._selected.append(None if all_of_them else selected.astype(np.int32))
        count = min(config.devices, max(at_least, math.ceil(self.rows / MOST_ROWS)))
        self._bounds = np.linspace(0, config.devices, count + 1).astype(int).tolist()

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def __getitem__(self, index: int) -> Block:
        first, last = self._bounds[index], self._bounds[index + 1]
        return Block(first, last, tuple(_between(selected, first, last) for selected in self._selected))

    def merged(self, lived: Sequence[Path]) -> Iterator[TraceRound]:
        """Yield the rounds of the fleet from the files of its blocks."""
        parts = [_LivedBlock(path, self.config.rounds) for path in lived]
        for round_index, selected in enumerate(self._selected):
            request = request_of(self.config, round_index)
            ledger = RoundLedger(request, np.empty(0) if selected is None else selected)
            for part in parts:
                worked, refused, completed = part.rows(round_index)
                ledger.worked += worked
                ledger.refused += refused
                ledger.completed += completed
            yield self._closed(ledger)

    def lived_at_once(self) -> Iterator[TraceRound]:
        """Yield the rounds of a fleet that is a single block, without a file."""
        for ledger in live(self.config, self[0]):
            yield self._closed(ledger)

    def _closed(self, ledger: RoundLedger) -> TraceRound:
        config, selected = self.config, self._selected[ledger.request.round_index]
        made = ledger.as_trace(config.devices)
        asked = config.devices if selected is None else len(selected)
        abandon_below_quorum(config, made, min(config.server.selection.target_of(config.devices), asked))
        return made


def _between(selected: np.ndarray | None, first: int, last: int) -> np.ndarray | None:
    if selected is None:
        return None
    low, high = np.searchsorted(selected, (first, last))
    return selected[low:high]


class _OwnClock:
    """The clock of a device whose life depends on nobody else: when it waits, time passes, and nothing else."""

    active_process = None

    def __init__(self, now_s: float) -> None:
        self.now = now_s

    def timeout(self, delay_s: float) -> None:
        self.now += delay_s


def live(config: SimulationConfig, block: Block) -> list[RoundLedger]:
    """Live through all rounds of a block; return its part of every round."""
    everybody = np.arange(block.first, block.last)
    selections = [everybody if selected is None else selected for selected in block.selected]
    ledgers = [
        RoundLedger(request_of(config, round_index), selected)
        for round_index, selected in enumerate(selections)
    ]
    if not ledgers:
        return []
    with gc_pause.paused():
        selected_in = rounds_by_client(range(len(ledgers)), selections)
        for device in devices_of(config, selected_in):
            for round_index in selected_in[device.client]:
                ledger = ledgers[round_index]
                result = ledger.check_in(device)
                if result is None:
                    continue
                ends_s = closed_form_ends(device, ledger.request)
                if ends_s is not None:
                    ledger.completed += live_through(device, result, ends_s)
                else:
                    clock: Any = _OwnClock(ledger.request.start_s)
                    for _ in LocalRound(clock, device, ledger.request, result).run(_nobody_waits):
                        pass
                    ledger.note_worked(device.client, result)
    return ledgers


def _nobody_waits(client: int, result: LocalRoundResult) -> None:
    """Take the report of a client for whom no server waits."""


def packed(ledgers: Sequence[RoundLedger]) -> bytes:
    """Return the rows of a lived block: three lengths a round, then the rows themselves."""
    parts = [part for ledger in ledgers for part in (ledger.worked, ledger.refused, ledger.completed)]
    return b"".join([np.array([len(part) for part in parts], dtype="<i8").tobytes(), *parts])


class _LivedBlock:
    """The file of a lived block, of which one round is read at a time."""

    def __init__(self, path: Path, rounds: int) -> None:
        self._path = path
        with open(path, "rb") as file:
            lengths = np.frombuffer(file.read(24 * rounds), dtype="<i8")
        self._lengths = lengths.reshape(rounds, 3)
        self._starts = 24 * rounds + np.concatenate([[0], np.cumsum(self._lengths.sum(axis=1))])

    def rows(self, round_index: int) -> tuple[bytes, bytes, bytes]:
        """Return the rows (worked, refused, completed) of a round."""
        with open(self._path, "rb") as file:
            file.seek(int(self._starts[round_index]))
            worked, refused, completed = (file.read(int(n)) for n in self._lengths[round_index])
        return worked, refused, completed
