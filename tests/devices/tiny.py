"""Tiny worlds: devices whose every change is written down by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fdsim.devices.config.fleet import DeviceGroup
from fdsim.devices.config.server import Server
from fdsim.devices.config.simulation import SimulationConfig
from fdsim.devices.engine.world import simulate
from fdsim.devices.models.connectivity import Connectivity, Spell
from fdsim.devices.models.habits import Phone
from fdsim.devices.models.spells import Switch
from fdsim.devices.models.usage import Usage
from fdsim.trace import Cause, Network, Phase, TraceRound
from fdsim.workload import NetCost, Workload

Timeline = tuple[tuple[bool, float], ...]


class Link(Connectivity):
    """A link with a timetable: [network, length] pairs; 8 Mbit/s both ways, no latency."""

    timetable: tuple[tuple[str, float], ...] = (("wifi", 1e9),)
    bps: float = 8e6
    rtt_s: float = 0.0

    def spells(self, rng: np.random.Generator) -> Iterator[Spell]:
        """As written."""
        for name, length_s in self.timetable:
            yield Spell(name != "none", length_s, Network[name], self.bps, self.bps, self.rtt_s)


class Habit(Usage):
    """Screen and charger with timetables."""

    screen_times: Timeline = ((False, 1e9),)
    charger_times: Timeline = ((False, 1e9),)

    def screen(self, rng: np.random.Generator, phone: Phone) -> Iterator[Switch]:
        """As written."""
        yield from (Switch(*spell) for spell in self.screen_times)

    def charger(self, rng: np.random.Generator, phone: Phone) -> Iterator[Switch]:
        """As written."""
        yield from (Switch(*spell) for spell in self.charger_times)


def group(**fields: Any) -> DeviceGroup:
    """One device: 36 kJ full, idle 1 W, screen 2 W, training 10 W, radio 4 W; trains 1 GFLOP in a second."""
    table: dict[str, Any] = {
        "count": 1,
        "battery": {"kind": "linear", "capacity_wh": 10.0, "charge_w": 20.0},
        "connectivity": Link(),
        "usage": Habit(),
        "compute": {},
        "power": {"idle_w": 1.0, "screen_w": 2.0, "train_w": 10.0},
        "radio": {"wifi_tx_w": 4.0, "wifi_rx_w": 4.0, "cellular_tx_w": 5.0, "cellular_rx_w": 5.0},
        "initial_soc": [1.0, 1.0],
        "low_soc": 0.0,
        "handshakes": 0,
    }
    table.update(fields)
    plain = {"kind": "flops", "gflops": 1.0, "gflops_ln_sd": 0.0, "background_load_frac": 0.0}
    cool = {"screen_load_frac": 0.0, "sustained_frac": 1.0}
    table["compute"] = {**plain, **cool, **table["compute"]}
    return DeviceGroup.model_validate(table)


def workload(clients: int, *, train_s: float = 10.0, transfer_s: float = 2.0) -> Workload:
    """Return work that takes a plain device this long to train and to transfer each way."""
    moved = int(transfer_s * 1e6)
    cost = NetCost(forward_flops=1e9 / 3, depthwise_frac=0.0, parameters=1)
    return Workload(cost, np.full(clients, train_s), moved, moved)


Event = tuple[float, int, str, float]


def live(
    fleet: tuple[DeviceGroup, ...] | DeviceGroup, *, rounds: int = 1, seed: int = 1, **fields: Any
) -> tuple[list[TraceRound], list[Event]]:
    """Simulate with and without an event log, check that the rounds are the same, and return them with the log."""
    fleet = fleet if isinstance(fleet, tuple) else (fleet,)
    extra = {name: fields.pop(name) for name in ("outages", "cells") if name in fields}
    work = fields.pop("work", None) or workload(sum(g.count for g in fleet))
    fields.setdefault("eligibility", {"requires_unmetered": False})
    config = SimulationConfig(fleet, Server.model_validate(fields), work, rounds, seed, **extra)
    log: list[Event] = []
    watched = list(simulate(config, on_event=lambda *event: log.append(event)))
    unwatched = list(simulate(config))
    for a, b in zip(watched, unwatched, strict=True):
        for name in vars(a):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
    times = [event[0] for event in log]
    assert times == sorted(times), "time never runs back"
    return unwatched, log


def ending(made: TraceRound, client: int = 0) -> tuple[str, str, float]:
    """Return (cause or 'completed', phase, end) of a client in a round."""
    code = int(made.cause[client])
    return (
        "completed" if code < 0 else Cause(code).name,
        Phase(int(made.phase[client])).name,
        round(float(made.end_s[client]), 6),
    )
