"""Study files: one base scenario, what varies over it, and how often it is repeated.

    [study]
    base = "cifar10.toml"          # relative to this file; or write the scenario's own tables below
    seeds = 10                     # the base's seed and the nine after it; or a list
    [study.grid]                   # every combination
    "participation.alpha" = [0.3, 0.5, 0.7]
    [study.zip]                    # keys that move together
    "training.batch_size" = [5, 20]
    "training.learning_rate" = [0.05, 0.1]
    [study.cases.proximal]         # named variants
    "training.proximal_mu" = 0.2
    [study.cases.plain]

Tables beside [study] are laid over the base, as with `extends`. `--set` works on the base scenario, and on the study
itself where a key begins with `study.`: `--set study.seeds=3 --set study.grid.participation.alpha=[0.5]`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, NonNegativeInt, PositiveInt, ValidationError, field_validator, model_validator

from fdsim.catalogue import PlainName, Table, import_also_from, merge
from fdsim.errors import ScenarioError
from fdsim.scenario.file import Layers, override, read_layers, toml_value
from fdsim.scenario.problems import scenario_error

Settings = dict[str, Any]
Sweep = dict[str, Annotated[list[Any], Field(min_length=1)]]


class StudyTable(Table):
    """What varies, how often each variant is repeated, and the resources of one run."""

    base: str = Field(
        default="", description="the scenario file that is varied; keys outside [study] are laid over it"
    )
    name: PlainName = Field(
        default="",
        max_length=100,
        description="names the study folder, studies/<name>; the file's name if not given",
    )
    seeds: PositiveInt | Annotated[tuple[NonNegativeInt, ...], Field(min_length=1)] = Field(
        default=1, description="a number of seeds, counted from the base's seed on, or a list of seeds"
    )
    grid: Sweep = Field(default_factory=dict, description="every combination of these keys' values")
    zip: Sweep = Field(default_factory=dict, description="keys whose lists advance together")
    cases: dict[str, Settings] = Field(
        default_factory=dict, description="named variants, each a table of keys"
    )
    one_strategy_per_trial: bool = Field(
        default=False, description="give every strategy a trial of its own; these share a trace"
    )
    retries: NonNegativeInt = Field(default=2, description="how often a failed trial is retried")
    threads_per_run: PositiveInt = Field(
        default=1, description="CPU threads of one run; the same number gives the same digits"
    )
    gpus_per_run: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description="fraction of a GPU for one run, such as 0.25; by default one GPU each where there are any",
    )

    @field_validator("grid", "zip", mode="before")
    @classmethod
    def _dotted(cls, value: Any) -> Any:
        return flatten(value) if isinstance(value, dict) else value

    @field_validator("cases", mode="before")
    @classmethod
    def _dotted_cases(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: flatten(case) if isinstance(case, dict) else case for name, case in value.items()}

    @field_validator("zip", mode="after")
    @classmethod
    def _zip_is_even(cls, value: Sweep) -> Sweep:
        lengths = {key: len(values) for key, values in value.items()}
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{key} has {length}" for key, length in lengths.items())
            raise ValueError(f"keys of [study.zip] move together and need lists of one length ({told})")
        return value

    @field_validator("seeds", mode="after")
    @classmethod
    def _seeds_differ(cls, value: int | tuple[int, ...]) -> int | tuple[int, ...]:
        if isinstance(value, tuple) and len(set(value)) < len(value):
            raise ValueError("the same seed is listed twice; each repeat needs a different one")
        return value

    @model_validator(mode="after")
    def _each_key_varies_once(self) -> StudyTable:
        groups = {
            "grid": [*self.grid],
            "zip": [*self.zip],
            "cases": [*{k: 0 for case in self.cases.values() for k in case}],
        }
        for group, keys in groups.items():
            for key in keys:
                if key == "seed":
                    raise ValueError(f"{group}.seed: seeds are not swept; write seeds = [1, 2, 3] in [study]")
                for other, theirs in groups.items():
                    clash = next(
                        (k for k in theirs if (k, other) != (key, group) and (k + ".").startswith(key + ".")),
                        None,
                    )
                    if clash is not None and (other != group or group != "cases"):
                        raise ValueError(f"{group}.{key} and {other}.{clash} set the same thing")
        return self

    @property
    def swept(self) -> tuple[str, ...]:
        """Every key that some trial sets, in file order."""
        return tuple(
            dict.fromkeys([*(k for case in self.cases.values() for k in case), *self.zip, *self.grid])
        )


@dataclass(frozen=True)
class StudyFile:
    """A study as read: its table, the base scenario's tables, and the texts they came from for messages."""

    table: StudyTable
    base_tables: dict[str, Any]
    layers: Layers
    import_from: tuple[Path, ...]
    """Folders that user-defined kinds are imported from."""
    overrides: tuple[str, ...]

    @property
    def name(self) -> str:
        """The study's name."""
        return self.table.name

    def place_of(self, key: str) -> str:
        """Name file and line of a swept key."""
        for group in ("grid", "zip"):
            if key in getattr(self.table, group):
                return self.layers.locate(("study", group, key))
        case = next((name for name, settings in self.table.cases.items() if key in settings), None)
        return self.layers.locate(("study", "cases", case, key) if case else ("study",))


def flatten(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Turn nested tables into dotted keys, so that quoted and plain dotted keys mean the same.

    A table with a `kind` is a value of its own: `"data.partition" = { kind = "iid" }` replaces the partition.
    """
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict) and value and "kind" not in value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = value
    return flat


def load_study(path: Path | str, overrides: Sequence[str] = ()) -> StudyFile:
    """Read a study file, its base scenario and `key=value` overrides, without making the trials yet."""
    path = Path(path)
    layers = read_layers(path)
    tables = dict(layers.tables)
    study = tables.pop("study", None)
    if not isinstance(study, dict):
        remedy = f"`fdsim run {path}` runs a single scenario; a study has a [study] table with base, seeds and grid"
        raise ScenarioError(str(path), "there is no [study] table", remedy)
    study = _override_study(study, [text for text in overrides if text.startswith("study.")])
    try:
        table = StudyTable.model_validate(study)
    except ValidationError as error:
        inside = [text.removeprefix("study.") for text in overrides if text.startswith("study.")]
        found = scenario_error(error, StudyTable, _Within(layers.tables, layers.texts, "study"), inside)
        raise _together(found, _base_problem(layers, study.get("base")), path) from None
    table = table.model_copy(update={"name": table.name or path.resolve().stem.removesuffix(".study")})
    texts = list(layers.texts)
    problem = _base_problem(layers, table.base)
    if problem is not None:
        raise problem
    if table.base:
        below = read_layers(_base_path(layers, table.base))
        if "study" in below.tables:
            raise ScenarioError(
                layers.locate(("study", "base")), f"'{table.base}' is a study, not a scenario"
            )
        tables = merge(below.tables, tables)
        texts += below.texts
    elif not tables:
        raise ScenarioError(
            str(path), "the study has no scenario", 'name one with base = "scenario.toml" in [study]'
        )
    plain = [text for text in overrides if not text.startswith("study.")]
    for text in plain:
        key = text.partition("=")[0].strip()
        group = "grid" if key in table.grid else "zip" if key in table.zip else None
        if group is not None:
            raise ScenarioError(
                f"--set {text}",
                f"'{key}' is swept by [study.{group}], which would overrule it",
                f"change the sweep itself, as in --set 'study.{group}.{key}=[…]'",
            )
    # Kinds of the user's own may be beside each file that names them.
    folders = list(dict.fromkeys(file.resolve().parent for file, _ in texts))
    for folder in reversed(folders):
        import_also_from(folder)
    return StudyFile(
        table, override(tables, plain), Layers(tables, tuple(texts)), tuple(folders), tuple(plain)
    )


@dataclass(frozen=True)
class _Within(Layers):
    """Layers whose keys are looked for inside one table."""

    table: str = ""

    def locate(self, loc: Sequence[str | int]) -> str:
        return Layers.locate(self, (self.table, *loc))


def _base_path(layers: Layers, base: str) -> Path:
    """Resolve `base` against the file that says it, which may be one that the study extends."""
    for path, text in layers.texts:
        if tomllib.loads(text).get("study", {}).get("base") == base:
            return path.parent / base
    return layers.texts[0][0].parent / base


def _base_problem(layers: Layers, base: object) -> ScenarioError | None:
    """Return what is wrong with the name of the base, if anything is: there must be a file of that name."""
    if not isinstance(base, str) or not base:
        return None
    path = _base_path(layers, base)
    try:
        if path.exists():
            return None
    except (OSError, ValueError):
        return None  # whoever reads it says why it cannot be a name
    near = sorted(each.name for each in path.parent.glob("*.toml")) if path.parent.is_dir() else []
    remedy = f"in {path.parent} there is: {', '.join(near)}" if near else "base is relative to the study file"
    return ScenarioError(layers.locate(("study", "base")), f"base: there is no file '{path}'", remedy)


def _together(first: ScenarioError, second: ScenarioError | None, path: Path) -> ScenarioError:
    """Return two problems of a study as one error, so that neither hides the other."""
    if second is None:
        return first
    return ScenarioError(str(path), f"several problems:\n  {first}\n  {second}")


def _override_study(study: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    changed = {**study}
    for setting in overrides:
        key, equals, text = setting.partition("=")
        parts = key.strip().split(".")[1:]
        if not equals or not all(parts) or not parts:
            raise ScenarioError(
                f"--set {setting}", "is not of the form key=value", "as in --set study.seeds=3"
            )
        if parts[0] in ("grid", "zip"):
            # Keys of a sweep are dotted themselves; everything after the group's name is one key.
            sweep = flatten(changed.get(parts[0], {}))
            changed[parts[0]] = {**sweep, ".".join(parts[1:]): toml_value(text)}
        elif parts[0] == "cases" and len(parts) > 2:
            cases = {name: flatten(case) for name, case in changed.get("cases", {}).items()}
            cases[parts[1]] = {**cases.get(parts[1], {}), ".".join(parts[2:]): toml_value(text)}
            changed["cases"] = cases
        else:
            changed = override(changed, [setting.removeprefix("study.")])
    return changed
