"""The scenario: what one run is about, as frozen tables that are also the TOML vocabulary.

    scenario = load_scenario("scenarios/quickstart.toml", overrides=["rounds=10"])

Reading is strict: an unknown key, a wrong sign or a missing file is an error that names the place. `as_toml` writes
every value out, defaults included, and reading that back gives an equal scenario.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import tomli_w
from pydantic import (
    Field,
    ModelWrapValidatorHandler,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from fdsim.catalogue import Chosen, OwnCode, PlainName, Table, import_also_from, own_code
from fdsim.data.coupling import Coupling
from fdsim.data.datasets import DataSource
from fdsim.devices.config.fleet import DeviceGroup
from fdsim.devices.config.outages import Cell, Outage
from fdsim.devices.config.server import Server
from fdsim.errors import ScenarioError
from fdsim.files import hash_of
from fdsim.learning.config.acceleration import Acceleration
from fdsim.learning.config.training import MOST, Training
from fdsim.learning.nets.library import Net
from fdsim.participation.base import Participation
from fdsim.scenario.file import TEXT, Layers, override, read_layers, with_value
from fdsim.scenario.problems import scenario_error
from fdsim.strategies.base import Strategy
from fdsim.telemetry.config import Telemetry


class Scenario(Table):
    """One run: a fleet (or another source of participation), a learning task, and the strategies to compare on it.

    Its fields are the keys of a scenario file; parts are tables, or objects of the families' classes:

        fdsim.Scenario(
            name="mine",
            rounds=20,
            data={"kind": "digits", "partition": {"kind": "clustered", "samples_per_client": 70}},
            net={"kind": "mlp"},
            training={"local_epochs": 2, "batch_size": 10, "learning_rate": 0.1},
            fleet=[{"profile": "midrange_phone", "count": 20}],
            strategies=[{"kind": "fdms"}, {"kind": "dropout"}],
        )
    """

    name: PlainName = Field(min_length=1, max_length=100, description="names the run folder, runs/<name>")
    seed: NonNegativeInt = Field(default=0, description="every random stream of the run is derived from it")
    rounds: PositiveInt = Field(le=MOST, description="rounds of learning")
    target_accuracy: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None,
        description="test accuracy for 'rounds to target'; by default 95 % of the best final accuracy",
    )
    data: Annotated[DataSource, Chosen("data")] = Field(
        description="the data set, and how it is divided among the clients"
    )
    net: Annotated[Net, Chosen("net")] = Field(description="the net that is trained")
    training: Training = Field(description="how clients train and what the server does with their updates")
    server: Server = Field(default=Server(), description="when rounds happen and whom they select")
    fleet: tuple[DeviceGroup, ...] = Field(default=(), description="groups of simulated devices")
    participation: Annotated[Participation | None, Chosen("participation", optional=True)] = Field(
        default=None, description="who takes part, without devices; in place of [[fleet]]"
    )
    coupling: Coupling = Field(default="random", description="which device holds which data")
    cells: tuple[Cell, ...] = Field(
        default=(), description="base stations or hot spots whose bandwidth their devices share"
    )
    outages: tuple[Outage, ...] = Field(
        default=(), description="outages of a site, a cell or the whole fleet"
    )
    strategies: tuple[Annotated[Strategy, Chosen("strategy")], ...] = Field(
        min_length=1, description="what stands in for missing updates; each learns on the same trace"
    )
    acceleration: Acceleration = Field(
        default=Acceleration(), description="on what and how training is computed"
    )
    telemetry: Telemetry = Field(default=Telemetry(), description="what is recorded, and how often")

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

    @model_validator(mode="wrap")
    @classmethod
    def _problems_are_told_by_place(
        cls, tables: Any, handler: ModelWrapValidatorHandler[Scenario], info: ValidationInfo
    ) -> Scenario:
        """Say place and remedy, also of what is built in code; the context has the source and its overrides."""
        try:
            return handler(tables)
        except ValidationError as error:
            source, overrides = info.context or ("Scenario", ())
            raise scenario_error(error, Scenario, source, overrides) from None

    @property
    def clients(self) -> int:
        """The number of clients K."""
        if self.participation is not None:
            return self.participation.client_count
        return sum(group.count for group in self.fleet)

    @property
    def most_selected(self) -> int:
        """The most clients that a round can select."""
        if self.participation is not None:
            return self.participation.most_selected
        target = self.server.selection.target_of(self.clients)
        return min(self.clients, math.ceil(target * self.server.over_selection - 1e-9))

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


#: Where a scenario may come from: a file, TOML text (anything with a line break), tables, or a scenario as it is.
Source = Path | str | Mapping[str, Any] | Scenario


def load_scenario(
    source: Source, overrides: Sequence[str] | Mapping[str, Any] = (), *, code: OwnCode | None = None
) -> Scenario:
    """Read a scenario from a file (with its `extends` chain), TOML text, a dict, or another scenario.

        fdsim.load_scenario("scenarios/quickstart.toml", {"rounds": 10, "training.batch_size": 20})

    Overrides are a dict of dotted keys, or texts as `--set` takes them: ["rounds=10"]. `code` says what becomes of kinds
    named `module:Class`; by default they are imported, from beside the file, the current folder or an installed
    package.
    """
    layers: Layers | str
    if isinstance(source, Scenario):
        if not overrides:
            return source
        layers, tables = source.name, source.as_tables()
    elif isinstance(source, Mapping):
        layers, tables = "scenario", dict(source)
    else:
        in_file = isinstance(source, Path) or "\n" not in source
        path = Path(source) if in_file else TEXT
        layers = read_layers(path, None if in_file else str(source))
        if code is None or code == OwnCode():
            # Kinds of the user's own may be beside each file that names them; a worker may import them later.
            for file, _ in reversed(layers.texts):
                import_also_from(file.resolve().parent)
        tables = layers.tables
    _refuse_study(tables, source)
    if isinstance(overrides, Mapping):
        for key, value in overrides.items():
            tables = with_value(tables, key, value, f"overrides[{key!r}]")
        shown = [f"{key}={value}" for key, value in overrides.items()]
    else:
        tables, shown = override(tables, overrides), list(overrides)
    with own_code(code):
        return Scenario.model_validate(tables, context=(layers, shown))


def _refuse_study(tables: Mapping[str, Any], source: Source) -> None:
    if isinstance(tables.get("study"), dict):
        shown = f"fdsim study {source}" if isinstance(source, Path) else "fdsim study FILE"
        raise ScenarioError(
            str(source) if isinstance(source, Path) else "study",
            "this is a study, many runs, and not a scenario",
            f"use `{shown}`, or fdsim.run_study in Python",
        )


def parse_scenario(tables: dict[str, Any], place: str = "scenario") -> Scenario:
    """Make a scenario from plain tables, with errors as readable as those of a file."""
    return Scenario.model_validate(tables, context=(place, ()))
