"""The scenario: what one run is about, as frozen tables that are also the TOML vocabulary.

    scenario = load_scenario("scenarios/quickstart.toml", overrides=["rounds=10"])

Reading is strict: an unknown key, a wrong sign or a missing file is an error that names the place. `as_toml` writes
every value out, defaults included, and reading that back gives an equal scenario.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tomli_w
from pydantic import Field, NonNegativeInt, PositiveInt, ValidationError, model_validator

from fdsim.catalogue import Chosen, OwnCode, PlainName, Table, import_also_from, own_code
from fdsim.data.coupling import Coupling
from fdsim.data.datasets import DataSource
from fdsim.devices.config.fleet import DeviceGroup
from fdsim.devices.config.outages import Cell, Outage
from fdsim.devices.config.server import Server
from fdsim.learning.config.acceleration import Acceleration
from fdsim.learning.config.training import Training
from fdsim.learning.nets.library import Net
from fdsim.participation.base import Participation
from fdsim.scenario.file import override, read_layers
from fdsim.scenario.problems import scenario_error
from fdsim.strategies.base import Strategy
from fdsim.telemetry.config import Telemetry


class Scenario(Table):
    """One run: a fleet (or another source of participation), a learning task, and the strategies to compare on it."""

    name: PlainName = Field(min_length=1, max_length=100, description="names the run folder, runs/<name>")
    seed: NonNegativeInt = Field(default=0, description="every random stream of the run is derived from it")
    rounds: PositiveInt
    target_accuracy: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None,
        description="test accuracy for 'rounds to target'; by default 95 % of the best final accuracy",
    )
    data: Annotated[DataSource, Chosen("data")]
    net: Annotated[Net, Chosen("net")]
    training: Training
    server: Server = Server()
    fleet: tuple[DeviceGroup, ...] = ()
    participation: Annotated[Participation | None, Chosen("participation", optional=True)] = None
    coupling: Coupling = "random"
    cells: tuple[Cell, ...] = ()
    outages: tuple[Outage, ...] = ()
    strategies: tuple[Annotated[Strategy, Chosen("strategy")], ...] = Field(min_length=1)
    acceleration: Acceleration = Acceleration()
    telemetry: Telemetry = Telemetry()

    @model_validator(mode="after")
    def _one_source_of_participation(self) -> Scenario:
        if self.fleet and self.participation is not None:
            raise ValueError(
                "both [[fleet]] and [participation] are given, but one run has one source of participation"
            )
        if not self.fleet and self.participation is None:
            raise ValueError(
                "nothing defines who takes part: give [[fleet]] groups or a [participation] table"
            )
        return self

    @model_validator(mode="after")
    def _strategies_have_names_of_their_own(self) -> Scenario:
        labels = [strategy.label for strategy in self.strategies]
        twice = next((label for label in labels if labels.count(label) > 1), None)
        if twice is not None:
            raise ValueError(
                f"two strategies are called '{twice}'; give one of them a name = \"…\" of its own"
            )
        return self

    @property
    def clients(self) -> int:
        """The number of clients K."""
        if self.participation is not None:
            return self.participation.client_count
        return sum(group.count for group in self.fleet)

    @property
    def content_hash(self) -> str:
        """A hash of everything the scenario says: equal hashes mean equal runs."""
        return hash_of(self.as_tables())

    def as_tables(self) -> dict[str, Any]:
        """Return the fully resolved scenario as plain TOML values."""
        return self.model_dump(mode="json", exclude_none=True)

    def as_toml(self) -> str:
        """Return the scenario as a TOML file with every default spelt out."""
        return tomli_w.dumps(self.as_tables())


def hash_of(value: Any) -> str:
    """Return the hash of a plain value's canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def load_scenario(
    path: Path | str, overrides: Sequence[str] = (), *, code: OwnCode | None = None
) -> Scenario:
    """Read a scenario file, its `extends` chain and `key=value` overrides.

    `code` says what becomes of kinds named `module:Class`; by default they are imported, from beside the file, the
    current folder or an installed package.
    """
    path = Path(path)
    layers = read_layers(path)
    if code is None or code == OwnCode():
        # Kinds of the user's own may be beside the scenario; a worker may import them later.
        import_also_from(path.resolve().parent)
    tables = override(layers.tables, overrides)
    try:
        with own_code(code):
            return Scenario.model_validate(tables)
    except ValidationError as error:
        raise scenario_error(error, Scenario, layers, overrides) from None


def parse_scenario(tables: dict[str, Any], place: str = "scenario") -> Scenario:
    """Make a scenario from plain tables, with errors as readable as those of a file."""
    try:
        return Scenario.model_validate(tables)
    except ValidationError as error:
        raise scenario_error(error, Scenario, place, ()) from None
