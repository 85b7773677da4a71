"""Everything that the simulation of a fleet depends on, and whether its parts agree."""

from __future__ import annotations

from dataclasses import dataclass

from fdsim.catalogue import nearest
from fdsim.devices.config.fleet import DeviceGroup
from fdsim.devices.config.outages import Cell, Outage
from fdsim.devices.config.server import Server
from fdsim.devices.models.connectivity import Bandwidth
from fdsim.errors import ScenarioError
from fdsim.workload import Workload


@dataclass(frozen=True)
class SimulationConfig:
    """Everything that the simulation of a fleet depends on."""

    fleet: tuple[DeviceGroup, ...]
    server: Server
    workload: Workload
    rounds: int
    seed: int
    outages: tuple[Outage, ...] = ()
    cells: tuple[Cell, ...] = ()

    @property
    def devices(self) -> int:
        """The number of devices K."""
        return sum(group.count for group in self.fleet)


def check(config: SimulationConfig) -> None:
    """Refuse a config whose parts contradict each other."""
    if len(config.workload.samples) != config.devices:
        raise ScenarioError(
            "fleet",
            f"{config.devices} devices cannot do the work of {len(config.workload.samples)} clients",
        )
    cells = [cell.name for cell in config.cells]
    for name in cells:
        if cells.count(name) > 1:
            raise ScenarioError("cells", f"'{name}' appears twice")
    for index, group in enumerate(config.fleet):
        if group.cell and cells and group.cell not in cells:
            raise ScenarioError(
                f"fleet[{index}].cell", f"no cell called '{group.cell}'" + nearest(group.cell, cells)
            )
        if group.cell and not cells and all(o.cell != group.cell for o in config.outages):
            raise ScenarioError(
                f"fleet[{index}].cell", f"no cell called '{group.cell}'", "add a [[cells]] table of that name"
            )
        lowest = max(group.low_soc, config.server.eligibility.min_soc)
        okay = lowest + config.server.eligibility.resume_soc_margin
        if config.server.on_lapse == "pause" and okay > 1.0:
            raise ScenarioError(
                "server.eligibility.resume_soc_margin",
                f"work that pauses below a charge of {lowest:g} would go on at {okay:g}, which no battery reaches",
                "lower it, min_soc or low_soc",
            )
    for index, outage in enumerate(config.outages):
        for kind in ("site", "cell"):
            name, known = getattr(outage, kind), sorted({getattr(g, kind) for g in config.fleet} - {""})
            if name and name not in known:
                raise ScenarioError(
                    f"outages[{index}].{kind}", f"no group has {kind} = '{name}'" + nearest(name, known)
                )
    rtt_s = max((_round_trips_s(group) for group in config.fleet), default=0.0)
    if config.server.deadline_s <= rtt_s:
        raise ScenarioError(
            "server.deadline_s",
            f"{config.server.deadline_s:g} s is shorter than the {rtt_s:g} s that the round trips alone take",
            "a deadline is in seconds; rounds on phones last minutes",
        )


def _round_trips_s(group: DeviceGroup) -> float:
    """Return the time that a group's round trips take on its fastest network, down and up."""
    times = [
        value.rtt_s
        for name in type(group.connectivity).model_fields
        if isinstance(value := getattr(group.connectivity, name), Bandwidth)
    ]
    return 2 * group.handshakes * min(times, default=0.0)


def hits(outage: Outage, group: DeviceGroup) -> bool:
    """Return whether an outage hits the devices of a group."""
    if outage.site:
        return group.site == outage.site
    return not outage.cell or group.cell == outage.cell
