"""All that the simulation of a fleet depends on, and whether its parts agree."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fdsim.catalogue import nearest
from fdsim.devices.config.fleet import DeviceGroup
from fdsim.devices.config.outages import Cell, Trouble
from fdsim.devices.config.server import Server
from fdsim.devices.models.connectivity import Bandwidth
from fdsim.errors import ScenarioError
from fdsim.workload import Workload


@dataclass(frozen=True)
class FleetSetting:
    """All that the simulation of a fleet depends on."""

    fleet: tuple[DeviceGroup, ...]
    server: Server
    workload: Workload
    rounds: int
    seed: int
    trouble: tuple[Trouble, ...] = ()
    cells: tuple[Cell, ...] = ()

    @property
    def devices(self) -> int:
        """The number of devices K."""
        return sum(group.count for group in self.fleet)

    @property
    def group_of_device(self) -> np.ndarray:
        """[K] the index of each device's group."""
        return np.repeat(np.arange(len(self.fleet)), [group.count for group in self.fleet])


def check(setting: FleetSetting) -> None:
    """Refuses a setting whose parts contradict each other."""
    if len(setting.workload.samples) != setting.devices:
        raise ScenarioError(
            "fleet",
            f"{setting.devices} devices cannot do the work of {len(setting.workload.samples)} clients",
        )
    cells = [cell.name for cell in setting.cells]
    for name in cells:
        if cells.count(name) > 1:
            raise ScenarioError("cells", f"'{name}' is there twice")
    for index, group in enumerate(setting.fleet):
        if group.cell and cells and group.cell not in cells:
            raise ScenarioError(
                f"fleet[{index}].cell", f"no cell called '{group.cell}'" + nearest(group.cell, cells)
            )
        if group.cell and not cells and all(t.cell != group.cell for t in setting.trouble):
            raise ScenarioError(
                f"fleet[{index}].cell", f"no cell called '{group.cell}'", "add a [[cells]] table of that name"
            )
    for index, trouble in enumerate(setting.trouble):
        for kind in ("site", "cell"):
            name, known = getattr(trouble, kind), sorted({getattr(g, kind) for g in setting.fleet} - {""})
            if name and name not in known:
                raise ScenarioError(
                    f"trouble[{index}].{kind}", f"no group has {kind} = '{name}'" + nearest(name, known)
                )
    rtt_s = max((_round_trips_s(group) for group in setting.fleet), default=0.0)
    if setting.server.deadline_s <= rtt_s:
        raise ScenarioError(
            "server.deadline_s",
            f"{setting.server.deadline_s:g} s is shorter than the {rtt_s:g} s that the round trips alone take",
            "a deadline is in seconds; rounds on phones last minutes",
        )


def _round_trips_s(group: DeviceGroup) -> float:
    """The time a group's round trips take on its nearest network, down and up."""
    times = [
        value.rtt_s
        for name in type(group.connectivity).model_fields
        if isinstance(value := getattr(group.connectivity, name), Bandwidth)
    ]
    return 2 * group.handshakes * min(times, default=0.0)


def hits(trouble: Trouble, group: DeviceGroup) -> bool:
    """Whether a group's devices suffer from a trouble."""
    if trouble.site:
        return group.site == trouble.site
    return not trouble.cell or group.cell == trouble.cell
