"""Lookahead: devices live through many rounds to come at once, each by itself, wherever nobody else matters.

When rounds start on time, a device needs nobody to know at which moments it will be asked. What it results, and a calm
round after it, depend on itself alone. So one device after the other lives through a whole stretch of rounds, while
its memory is at hand; visiting a large fleet round by round means fetching every device from slow memory each time.
Only what others may change waits for the world's clock: a round that something comes into, that shares a cell, or
that the server may close early. The device then stands at its check-in until the clock gets there.

A world that is watched goes round by round, with the same result to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from fdsim.devices.config.simulation import SimulationConfig
from fdsim.devices.engine.closed_form_round import closed_form_ends, live_through
from fdsim.devices.engine.device_process import DeviceProcess
from fdsim.devices.engine.local_round import LocalRoundResult, RoundRequest
from fdsim.devices.engine.round_ledger import RoundLedger, pack_completed, pack_refused
from fdsim.trace import Network, Phase

#: The most rounds that a device lives through at once, and the most rows that wait for their rounds (14 or 53 B each).
MOST_ROUNDS, MOST_ROWS = 64, 5_000_000

#: Is told the share of the fleet that is built, or has lived up to a time, and that time; None while building.
OnPart = Callable[[float, float | None], None]
#: Devices between two such messages.
PART = 2000

# Looking a member up in its enum costs more than comparing it.
_CHECK_IN, _NO_NETWORK = Phase.check_in, Network.none


def is_possible(config: SimulationConfig) -> bool:
    """Whether it is known beforehand when rounds start and whom they ask."""
    server = config.server
    # A round is over at its deadline, give or take the rounding of the clock, of which a second is a great deal.
    on_time = server.deadline_s < server.round_interval_s - 1.0
    return on_time and server.selection.pool == "all"


class Lookahead:
    """The roll calls of rounds to come, a stretch of them at a time."""

    def __init__(
        self,
        config: SimulationConfig,
        processes: list[DeviceProcess],
        *,
        choose: Callable[[int], np.ndarray],
        request: Callable[[int], RoundRequest],
        on_part: OnPart | None = None,
    ) -> None:
        self._config, self._participants, self._choose, self._job = config, processes, choose, request
        self._on_part = on_part
        asked = config.server.selection.target(config.devices) * config.server.over_selection
        self._stretch = max(1, min(MOST_ROUNDS, int(MOST_ROWS / max(1.0, asked))))
        self._closes_early = config.server.over_selection > 1.0
        self._rounds: dict[int, tuple[RoundRequest, RoundLedger]] = {}
        #: client that stands at a check-in → the rounds after it in which it is asked.
        self._later: dict[int, list[int]] = {}

    def round_ledger(self, round_index: int) -> RoundLedger:
        """The roll call of the next round."""
        if round_index not in self._rounds:
            self._look_ahead(round_index)
        _, found = self._rounds.pop(round_index)
        return found

    def go_on(self, clients: Iterable[int]) -> None:
        """Let devices that were called in a round go on after its end."""
        for client in clients:
            self._live(client, self._later.pop(client))

    def _look_ahead(self, first: int) -> None:
        rounds = range(first, max(first + 1, min(first + self._stretch, self._config.rounds)))
        choices = [self._choose(round_index) for round_index in rounds]
        self._rounds = {
            i: (self._job(i), RoundLedger(len(chosen))) for i, chosen in zip(rounds, choices, strict=True)
        }
        clients = np.concatenate(choices)
        order = np.argsort(clients, kind="stable")
        asked_in = np.repeat(rounds, [len(chosen) for chosen in choices])[order].tolist()
        clients, begins = np.unique(clients[order], return_index=True)
        ends = [*begins[1:].tolist(), len(asked_in)]
        to_s, on_part = self._rounds[rounds[-1]][0].start_s, self._on_part
        for place, (begin, end) in enumerate(zip(begins.tolist(), ends, strict=True), 1):
            self._live(int(clients[place - 1]), asked_in[begin:end])
            if on_part is not None and place % PART == 0:
                on_part(place / len(clients), to_s)

    def _live(self, client: int, rounds: list[int]) -> None:
        """Let a device live through rounds in which it is asked, up to one that the world's clock must decide."""
        process = self._participants[client]
        device, load = process.device, process.device.group.compute.load
        alone = process.cell is None and not self._closes_early
        for place, round_index in enumerate(rounds):
            request, round_ledger = self._rounds[round_index]
            start_s = request.start_s
            device.advance(start_s)
            cause, soc = device.obstacle(_CHECK_IN), device.charge_j / device.full_j
            if cause is not None:
                network = device.link.network if device.online else _NO_NETWORK
                round_ledger.refused += pack_refused(client, cause, network, soc)
                continue
            network, free_frac = device.link.network, 1.0 - load(device.rng)
            ends_s = closed_form_ends(device, request, process.work, free_frac) if alone else None
            if ends_s is None:
                round_ledger.called[client] = LocalRoundResult(start_s, soc, network), free_frac
                self._later[client] = rounds[place + 1 :]
                return
            energy_j = live_through(device, start_s, ends_s)
            soc_end = device.charge_j / device.full_j
            round_ledger.completed += pack_completed(client, network, soc, soc_end, *ends_s, energy_j)
