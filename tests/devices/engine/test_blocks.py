"""A fleet in blocks leaves the trace that it leaves on one clock, to the last bit; where devices share, it says so."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fdsim.bench.fleet import small_work
from fdsim.devices.config.fleet import DeviceGroup
from fdsim.devices.config.outages import Cell, Outage
from fdsim.devices.config.server import Server
from fdsim.devices.config.simulation import SimulationConfig
from fdsim.devices.engine import assembly, round_ledger
from fdsim.devices.engine.blocks import Blocks, live, packed, shared
from fdsim.devices.engine.local_round import LocalRoundResult
from fdsim.devices.engine.world import simulate
from fdsim.trace import TraceRound
from fdsim.trace.round import CLIENT_COLUMNS

SERVERS: dict[str, dict[str, Any]] = {
    "everybody": {},
    "a few": {"selection": {"kind": "random", "clients_per_round": 9}},
    "a fraction": {"selection": {"kind": "random", "frac": 0.3}, "start_hour": 7.5},
    "paused": {"on_lapse": "pause", "deadline_s": 900.0, "round_interval_s": 1000.0},
    "a quorum": {"eligibility": {"requires_charging": True, "requires_idle": True}, "min_reports_frac": 0.2},
}


def config(server: dict[str, Any], rounds: int = 36) -> SimulationConfig:
    """Phones, phones that crash at a site with outages, and phones that charge at night; none shares anything."""
    crash = {"every_s": 4000.0, "recovers_s": 600.0}
    tables: list[dict[str, Any]] = [
        {"profile": "flash2020", "count": 20},
        {"profile": "flash2020", "count": 13, "site": "s", "crash": crash},
        {"profile": "us_nightly", "count": 7},
    ]
    outage = Outage(site="s", takes=("power", "wifi"), every_s=5000.0, lasts_s=900.0)
    groups = tuple(DeviceGroup.model_validate(table) for table in tables)
    return SimulationConfig(groups, Server.model_validate(server), small_work(40), rounds, 4, (outage,))


def lived_in_blocks(made: SimulationConfig, count: int, folder: Path) -> list[TraceRound]:
    blocks = Blocks(made, at_least=count)
    assert len(blocks) == count
    places = [folder / str(index) for index in range(count)]
    # The last block first: their order does not matter.
    for index in reversed(range(count)):
        places[index].write_bytes(packed(live(made, blocks[index])))
    return list(blocks.merged(places))


def assert_same(found: list[TraceRound], expected: list[TraceRound]) -> None:
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert (mine.round, mine.round_start_s, mine.round_end_s) == (
            theirs.round,
            theirs.round_start_s,
            theirs.round_end_s,
        )
        for name in CLIENT_COLUMNS:
            a, b = getattr(mine, name), getattr(theirs, name)
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b, err_msg=f"round {mine.round}, {name}")


@pytest.mark.parametrize("server", SERVERS)
def test_the_same_trace_however_many_blocks(server: str, tmp_path: Path) -> None:
    made = config(SERVERS[server])
    assert shared(made) is None
    expected = list(simulate(made))
    assert sum(len(r.selected) for r in expected) > 0
    for count in (1, 3, 40):
        assert_same(lived_in_blocks(made, count, tmp_path), expected)


def test_rounds_that_something_disturbs_are_among_them() -> None:
    """Otherwise the clock of a single device would not have been compared."""
    made = config(SERVERS["paused"])
    assert sum(len(ledger.worked) for ledger in live(made, Blocks(made)[0])) > 0


def test_only_selected_clients_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []

    class Noted(assembly.Device):
        def __init__(self, client: int, *about: Any, **more: Any) -> None:
            built.append(client)
            super().__init__(client, *about, **more)

    monkeypatch.setattr(assembly, "Device", Noted)
    made = config({"selection": {"kind": "random", "clients_per_round": 1}}, rounds=3)
    blocks = Blocks(made, at_least=4)
    selected = [ledger.selected.tolist() for index in range(4) for ledger in live(made, blocks[index])]
    assert built == sorted({client for some in selected for client in some})
    assert 1 <= len(built) <= 3


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        ({"selection": {"kind": "all", "pool": "eligible"}}, "eligible"),
        ({"over_selection": 1.3, "selection": {"kind": "random", "clients_per_round": 9}}, "over_selection"),
        ({"deadline_s": 1800.0, "round_interval_s": 1800.0}, "starts late"),
    ],
)
def test_what_devices_share_is_named(server: dict[str, Any], reason: str) -> None:
    assert reason in str(shared(config(server)))


def test_a_cell_is_shared_where_somebody_is_in_it() -> None:
    made = config({})
    alone = dataclasses.replace(made, cells=(Cell(name="c", down_bps=2e7, up_bps=1e7),))
    assert shared(alone) is None
    inside = tuple(group.model_copy(update={"cell": "c"}) for group in alone.fleet)
    assert "cell 'c'" in str(shared(dataclasses.replace(alone, fleet=inside)))


def test_results_are_packed_as_they_are_read() -> None:
    ledger = round_ledger.RoundLedger(assembly.request_of(config({}), 0), np.arange(3))
    ledger.note_worked(2, LocalRoundResult(1.0, 0.5, 2, 3.0, 0.25, -1, 3, 1.0, 0.1, 0.2, 0.3, 9.0, 2**40, 7))
    assert np.frombuffer(ledger.worked, round_ledger.WORKED).tolist() == [
        (2, 1.0, 0.5, 2, 3.0, 0.25, -1, 3, 1.0, 0.1, 0.2, 0.3, 9.0, 2**40, 7)
    ]
