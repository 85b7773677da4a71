"""Groups, profiles and the server's table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from fdsim.devices.config.fleet import DeviceGroup
from fdsim.devices.config.outages import Cell, Outage
from fdsim.devices.config.profiles import about, names, profile, sources
from fdsim.devices.config.server import Server
from fdsim.devices.config.simulation import SimulationConfig
from fdsim.devices.engine.world import simulate
from fdsim.devices.models.connectivity import AlwaysOn
from fdsim.errors import ScenarioError
from tests.devices.tiny import workload


@pytest.mark.parametrize("name", names())
def test_every_profile_dumps_and_reads_the_same(name: str) -> None:
    group = DeviceGroup.model_validate({"profile": name, "count": 3})
    dumped = group.model_dump(mode="json", exclude_none=True)
    assert DeviceGroup.model_validate(dumped) == group


def leaves(table: dict[str, Any], path: str = "") -> list[str]:
    found = []
    for key, value in table.items():
        here = f"{path}.{key}" if path else key
        if isinstance(value, dict):
            found += leaves(value, here)
        elif not isinstance(value, str | bool):
            found.append(here)
    return found


@pytest.mark.parametrize("name", names())
def test_every_number_has_its_source(name: str) -> None:
    told = sources(name)
    for key in leaves(profile(name)):
        assert any(key == start or key.startswith(start + ".") for start in told), (
            f"{name}: {key} has no source"
        )
    for text in told.values():
        assert any(mark in text for mark in ("[D]", "[T]", "[M]", "[E]", "mains")), text


def test_every_profile_exists_and_has_a_description() -> None:
    wanted = {"flagship_phone", "midrange_phone", "budget_phone", "tablet", "raspberry_pi_4", "jetson_nano"}
    assert wanted | {"laptop", "flash2020", "fedscale", "us_nightly"} == set(names())
    assert all(text for _, text in about())


def test_fields_of_the_same_kind_merge_and_another_kind_replaces() -> None:
    merged = DeviceGroup.model_validate({"count": 1, "battery": {"capacity_wh": 7.0}})
    assert merged.battery.model_dump()["capacity_wh"] == 7.0
    assert merged.battery.model_dump()["charge_w"] == 12.0
    other = DeviceGroup.model_validate({"count": 1, "connectivity": "always_on"})
    assert other.connectivity == AlwaysOn()
    with pytest.raises(ValidationError):
        DeviceGroup.model_validate({"count": 1, "battery": {"kind": "linear"}})


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"profile": "flagship_fone"}, "did you mean 'flagship_phone'"),
        ({"count": 0}, "count"),
        ({"battery": {"capacity_wh": 4000}}, "capacity_wh"),
        ({"power": {"idle_w": -1}}, "idle_w"),
        ({"initial_soc": [0.9, 0.2]}, "lowest, highest"),
        ({"initial_soc": [0.5, 80]}, "initial_soc"),
        ({"low_soc": 15}, "low_soc"),
        ({"boot_soc": 0}, "boots nothing"),
        ({"colour": "red"}, "colour"),
        ({"crash": {"every_s": -1, "recovers_s": 1}}, "every_s"),
    ],
)
def test_bad_groups_are_refused(fields: dict[str, Any], word: str) -> None:
    with pytest.raises(ValidationError, match=word):
        DeviceGroup.model_validate({"count": 1, **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {"deadline_s": 0},
        {"round_interval_s": -5},
        {"over_selection": 0.5},
        {"min_reports_frac": 1.5},
        {"on_lapse": "cry"},
        {"eligibility": {"min_soc": 15}},
        {"start_hour": 24},
    ],
)
def test_bad_servers_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Server.model_validate(fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"lasts_s": 5},
        {"lasts_s": 5, "every_s": 5, "at_s": [1]},
        {"lasts_s": 5, "at_s": [10, 12]},
        {"lasts_s": 5, "at_s": [10], "site": "a", "cell": "b"},
        {"lasts_s": -5, "every_s": 1},
    ],
)
def test_bad_outages_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Outage.model_validate(fields)


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"fleet": ({"cell": "tower"},)}, "no cell called 'tower'"),
        ({"outages": ({"site": "hom", "every_s": 1, "lasts_s": 1},), "fleet": ({"site": "home"},)}, "'home'"),
        ({"server": {"deadline_s": 0.05}}, "shorter than"),
        ({"cells": ({"name": "a", "down_bps": 1, "up_bps": 1},) * 2}, "twice"),
        ({"clients": 5}, "5 clients"),
    ],
)
def test_a_contradictory_config_is_refused(config: dict[str, Any], word: str) -> None:
    fleet = tuple(DeviceGroup.model_validate({"count": 2, **g}) for g in config.get("fleet", ({},)))
    made = SimulationConfig(
        fleet,
        Server.model_validate(config.get("server", {})),
        workload(config.get("clients", sum(g.count for g in fleet))),
        1,
        1,
        tuple(Outage.model_validate(t) for t in config.get("outages", ())),
        tuple(Cell.model_validate(c) for c in config.get("cells", ())),
    )
    with pytest.raises(ScenarioError, match=word):
        list(simulate(made))


def test_adding_devices_moves_nobody() -> None:
    """The first devices of a larger fleet live the same lives."""
    rounds = []
    for count in (4, 9):
        fleet = (DeviceGroup.model_validate({"count": count}),)
        rounds.append(list(simulate(SimulationConfig(fleet, Server(), workload(count), 10, 3))))
    for small, large in zip(*rounds, strict=True):
        np.testing.assert_array_equal(small.outcome, large.outcome[:4])
        np.testing.assert_array_equal(small.soc_end, large.soc_end[:4])


def test_another_seed_is_another_fleet() -> None:
    fleet = (DeviceGroup.model_validate({"count": 20}),)
    a, b = (list(simulate(SimulationConfig(fleet, Server(), workload(20), 5, seed))) for seed in (1, 2))
    assert any((x.outcome != y.outcome).any() for x, y in zip(a, b, strict=True))
