"""Lookahead: devices live through many rounds to come at once, each by itself, wherever nobody else matters.

When rounds start on time, it is known beforehand at which moments a device will be selected. Its check-in, and an
undisturbed round after it, depend on the device alone. So one device after the other lives through a whole stretch of
rounds, while its memory is at hand; visiting a large fleet round by round means fetching every device from slow memory
each time. Only what others may change waits for the world's clock: a round that something disturbs, that shares a
cell, or that the server may close early. The device then stands at its check-in until the clock gets there.

A world that keeps an event log goes round by round instead, with the same trace to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from fdsim.devices.config.simulation import SimulationConfig
from fdsim.devices.engine.device import Device
from fdsim.devices.engine.local_round import (
    LocalRoundResult,
    RoundRequest,
    phase_powers_w,
    training_rate,
    work_energy_j,
)
from fdsim.devices.engine.round_ledger import RoundLedger, pack_completed

#: The most rounds that a device lives through at once, and the most rows that wait for their rounds (14 or 53 B each).
MOST_ROUNDS, MOST_ROWS = 64, 5_000_000

#: Is told the fraction of the fleet that is built, or has lived up to a time, and that time; None while building.
OnPart = Callable[[float, float | None], None]
#: Devices between two such messages.
PART = 2000

#: When download, training and upload of a round end.
Ends = tuple[float, float, float]


def is_possible(config: SimulationConfig) -> bool:
    """Return whether it is known beforehand when rounds start and whom they select."""
    server = config.server
    # A round is over at its deadline, give or take the rounding of the clock, of which a second is a great deal.
    on_time = server.deadline_s < server.round_interval_s - 1.0
    return on_time and server.selection.pool == "all"


class Lookahead:
    """The ledgers of rounds to come, a stretch of them at a time."""

    def __init__(
        self,
        config: SimulationConfig,
        devices: list[Device],
        open_round: Callable[[int], RoundLedger],
        *,
        on_part: OnPart | None = None,
    ) -> None:
        self._devices, self._open_round, self._on_part = devices, open_round, on_part
        selected = config.server.selection.target_of(config.devices) * config.server.over_selection
        self._stretch = max(1, min(MOST_ROUNDS, int(MOST_ROWS / max(1.0, selected))))
        self._closes_early, self._rounds = config.server.over_selection > 1.0, config.rounds
        self._ledgers: dict[int, RoundLedger] = {}
        #: client that stands at a check-in → the rounds after it for which it is selected.
        self._later: dict[int, list[int]] = {}

    def ledger(self, round_index: int) -> RoundLedger:
        """Return the ledger of the next round, with every client settled or called."""
        if round_index not in self._ledgers:
            self._look_ahead(round_index)
        return self._ledgers.pop(round_index)

    def resume(self, clients: Iterable[int]) -> None:
        """Let devices that were called in a round live on after its end."""
        for client in clients:
            self._live(client, self._later.pop(client))

    def _look_ahead(self, first: int) -> None:
        rounds = range(first, max(first + 1, min(first + self._stretch, self._rounds)))
        self._ledgers = {round_index: self._open_round(round_index) for round_index in rounds}
        by_client = rounds_by_client(rounds, [ledger.selected for ledger in self._ledgers.values()])
        to_s, on_part = self._ledgers[rounds[-1]].request.start_s, self._on_part
        for place, (client, selected_in) in enumerate(by_client.items(), 1):
            self._live(client, selected_in)
            if on_part is not None and place % PART == 0:
                on_part(place / len(by_client), to_s)

    def _live(self, client: int, rounds: list[int]) -> None:
        """Let a device live through rounds for which it is selected, up to one that the world's clock must decide."""
        device = self._devices[client]
        alone = device.cell is None and not self._closes_early
        for place, round_index in enumerate(rounds):
            ledger = self._ledgers[round_index]
            result = ledger.check_in(device)
            if result is None:
                continue
            ends_s = closed_form_ends(device, ledger.request) if alone else None
            if ends_s is None:
                ledger.called[client] = result
                self._later[client] = rounds[place + 1 :]
                return
            ledger.completed += live_through(device, result, ends_s)


def rounds_by_client(rounds: Sequence[int], selections: Sequence[np.ndarray]) -> dict[int, list[int]]:
    """Return client → the rounds for which it is selected, both ascending, from whom each round selects."""
    clients = np.concatenate(selections)
    order = np.argsort(clients, kind="stable")
    selected_in = np.repeat(rounds, [len(selected) for selected in selections])[order].tolist()
    clients, begins = np.unique(clients[order], return_index=True)
    ends = [*begins[1:].tolist(), len(selected_in)][: len(begins)]
    return {
        client: selected_in[begin:end]
        for client, begin, end in zip(clients.tolist(), begins.tolist(), ends, strict=True)
    }


def closed_form_ends(device: Device, request: RoundRequest) -> Ends | None:
    """Return when the three phases end if nothing disturbs the round, or None if something might.

    Then the round needs no clock: its closed form gives what the race would give, to the last bit.
    """
    link = device.surroundings.link
    shake_s = device.group.handshakes * link.rtt_s
    rate, steady_s = training_rate(device, 0.0)
    down_s = device.battery.t_s + shake_s + 8.0 * request.bytes_down / link.down_bps
    train_s = device.work / rate
    end_s = down_s + train_s + shake_s + 8.0 * request.bytes_up / link.up_bps
    if train_s < steady_s and end_s < request.deadline_s and device.nothing_before(end_s):
        return down_s, down_s + train_s, end_s
    return None


def live_through(device: Device, checked_in: LocalRoundResult, ends_s: Ends) -> bytes:
    """Let a device live through its undisturbed round, and return its row of the ledger."""
    start_s, (down_s, train_s, end_s) = checked_in.start_s, ends_s
    down_w, train_w, up_w = phase_powers_w(device)
    device.work_through(((down_w, down_s), (train_w, train_s), (up_w, end_s)))
    energy_j = (
        work_energy_j(device, down_w, down_s - start_s)
        + work_energy_j(device, train_w, train_s - down_s)
        + work_energy_j(device, up_w, end_s - train_s)
    )
    return pack_completed(
        device.client, checked_in.network, checked_in.soc_start, device.soc, *ends_s, energy_j
    )
