"""From a study file to its trials: each an ordinary scenario, all checked before the first one runs."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tomli_w

from fdsim.catalogue import merge
from fdsim.data.memory import ANY_MACHINE_BYTES
from fdsim.errors import InputError, ScenarioError
from fdsim.prepare import check, doubts, prepare
from fdsim.scenario import Scenario, parse_scenario
from fdsim.scenario.file import with_value
from fdsim.studies.shared_divisions import SharedDivisions
from fdsim.studies.study_file import Settings, StudyFile

_LONGEST_SLUG = 80
MOST_TRIALS = 10_000
#: Counts of logs differ from seed to seed, and so do the sentences about them.
_MOST_DOUBTS = 5


@dataclass(frozen=True)
class Trial:
    """One run of a study: a scenario, and what sets it apart from the study's other runs."""

    id: str
    """Names the trial's run folder; ends in a hash of the scenario, so that a finished trial is recognised."""
    scenario: Scenario
    trace_key: str
    """Trials with equal keys learn on one trace."""
    case: str | None
    settings: Settings
    """Swept keys and this trial's values."""

    @property
    def seed(self) -> int:
        """The scenario's seed."""
        return self.scenario.seed

    @property
    def label(self) -> str:
        """What sets the trial apart, in a few words."""
        return trial_label(self.case, self.settings, self.seed)

    @property
    def work(self) -> float:
        """The trial's size in client rounds of training; only ratios between trials are meaningful."""
        return float(self.scenario.clients * self.scenario.rounds * len(self.scenario.strategies))


@dataclass(frozen=True)
class StudyPlan:
    """Everything a study is going to run."""

    study: StudyFile
    trials: tuple[Trial, ...]

    @property
    def traces(self) -> int:
        """How many different traces the trials need."""
        return len({trial.trace_key for trial in self.trials})

    def doubts(self) -> list[str]:
        """Return what is allowed in the trials but can hardly be meant: each once, with the first trial it holds in.

        What is doubted lies in fleet, server and data, so that trials on one trace have all in common but the last.
        """
        first: dict[tuple[str, ...], Trial] = {}
        for trial in self.trials:
            first.setdefault((trial.trace_key, *trial.scenario.data.doubts()), trial)
        found: dict[str, list[Trial]] = {}
        for trial in first.values():
            for doubt in doubts(trial.scenario):
                found.setdefault(doubt, []).append(trial)
        told = [
            doubt if len(held) == len(first) else f"{doubt} (in trial {held[0].label})"
            for doubt, held in found.items()
        ]
        more = len(told) - _MOST_DOUBTS
        return told if more <= 0 else [*told[:_MOST_DOUBTS], f"{more} more such doubts in other trials"]

    def resolved_toml(self) -> str:
        """Write the study as one self-contained file: base included, seeds listed."""
        table = self.study.table.model_dump(mode="json", exclude_none=True, exclude={"base"})
        table["seeds"] = list(_seeds(self.study))
        # Scalars first: TOML keys after a table's header would belong to that table.
        return tomli_w.dumps({"study": table, **self.study.base_tables})


def plan_study(study: StudyFile, *, to_check: bool = False) -> StudyPlan:
    """Make and check every trial; an error names the setting at fault and the trial it occurs in.

    A plan made only `to_check` the study is not for running: data are divided no further than a check needs them, so
    that the keys of its traces are others.
    """
    _refuse_endless(study)
    divisions = SharedDivisions(to_check=to_check)
    # Looked up once: for each trial it would take as long as checking the trial.
    places = {key: study.place_of(key) for key in study.table.swept}
    trials: list[Trial] = []
    seen: dict[str, Trial] = {}
    for case, settings, scenario in _scenarios(study, places):
        for part in _split(scenario, study.table.one_strategy_per_trial):
            content_hash = part.content_hash
            trial = _trial(part, content_hash, case, settings, divisions)
            same = seen.get(content_hash)
            if same is not None:
                raise ScenarioError(
                    study.layers.locate(("study",)),
                    f"two trials are the same run: {same.label} and {trial.label}",
                    "remove the repeated value from the sweep",
                )
            seen[content_hash] = trial
            trials.append(trial)
    return StudyPlan(study, tuple(trials))


def _refuse_endless(study: StudyFile) -> None:
    """Raise an error when a sweep has more trials than anybody can run; each is checked before the first one runs."""
    table = study.table
    count = len(table.seeds) if isinstance(table.seeds, tuple) else table.seeds
    count *= max(1, len(table.cases)) * math.prod(len(values) for values in table.grid.values())
    count *= len(next(iter(table.zip.values()), [None]))
    if count > MOST_TRIALS:
        raise ScenarioError(
            study.layers.locate(("study",)),
            f"{count} trials are more than a study can have",
            f"sweep fewer values or seeds: at most {MOST_TRIALS} trials",
        )


def _seeds(study: StudyFile) -> tuple[int, ...]:
    seeds = study.table.seeds
    if isinstance(seeds, tuple):
        return seeds
    first = study.base_tables.get("seed", 0)
    if not isinstance(first, int) or isinstance(first, bool) or first < 0:
        raise ScenarioError(
            study.layers.locate(("seed",)), f"seed: {first!r} is not a whole number from 0 on"
        )
    return tuple(range(first, first + seeds))


def _scenarios(study: StudyFile, places: dict[str, str]) -> Iterator[tuple[str | None, Settings, Scenario]]:
    """Yield case, settings and scenario of each run; `places` are those of the swept keys."""
    first, *others = _seeds(study)
    for case, settings in _variants(study):
        scenario = _scenario(study, case, settings, first, places)
        yield case, settings, scenario
        # Nothing in a scenario depends on its seed, which is a whole number from 0 on in all of them.
        for seed in others:
            yield case, settings, scenario.model_copy(update={"seed": seed})


def _variants(study: StudyFile) -> Iterator[tuple[str | None, Settings]]:
    """Yield case and settings: cases outermost, then zip, then grid."""
    table = study.table
    cases: list[tuple[str | None, Settings]] = [*table.cases.items()] or [(None, {})]
    zipped = [
        dict(zip(table.zip, values, strict=True)) for values in zip(*table.zip.values(), strict=True)
    ] or [{}]
    crossed = [
        dict(zip(table.grid, values, strict=True)) for values in itertools.product(*table.grid.values())
    ]
    for (case, own), together, point in itertools.product(cases, zipped, crossed):
        yield case, {**own, **together, **point}


def _scenario(
    study: StudyFile, case: str | None, settings: Settings, seed: int, places: dict[str, str]
) -> Scenario:
    tables = study.base_tables
    for key, value in settings.items():
        below = _value_at(tables, key)
        laid = merge({"_": below}, {"_": value})["_"] if isinstance(value, dict) else value
        tables = with_value(tables, key, laid, places[key])
    tables = {**tables, "seed": seed}
    shown = {f"{key}={_shown(value)}": key for key, value in settings.items()}
    try:
        return Scenario.model_validate(tables, context=(study.layers, [*study.overrides, *shown]))
    except ScenarioError as error:
        told = error
    guilty = shown.get(told.place.removeprefix("--set "))
    place = places[guilty] if guilty is not None else told.place
    where = f" (in trial {trial_label(case, settings, seed)})" if settings or case else ""
    raise ScenarioError(place, f"{told.problem}{where}", told.remedy)


def _value_at(node: Any, key: str) -> Any:
    for part in key.split("."):
        if isinstance(node, dict):
            node = node.get(part)
        elif isinstance(node, list) and part.isdecimal() and len(part) < 10 and int(part) < len(node):
            node = node[int(part)]
        else:
            return None
    return node


def _split(scenario: Scenario, one_strategy_per_trial: bool) -> Iterator[Scenario]:
    if not one_strategy_per_trial or len(scenario.strategies) == 1:
        yield scenario
        return
    for strategy in scenario.strategies:
        tables = scenario.as_tables()
        tables["strategies"] = [strategy.model_dump(mode="json", exclude_none=True)]
        yield parse_scenario(tables)


def _trial(
    scenario: Scenario,
    content_hash: str,
    case: str | None,
    settings: Settings,
    divisions: SharedDivisions,
) -> Trial:
    try:
        prepared = prepare(scenario, divisions.of)
        check(prepared, ANY_MACHINE_BYTES)
    except InputError as error:
        where = trial_label(case, settings, scenario.seed)
        raise type(error)(error.place, f"{error.problem} (in trial {where})", error.remedy) from None
    words = [case or "", *(f"{_short(key, settings)}-{_shown(value)}" for key, value in settings.items())]
    words.append(f"seed-{scenario.seed}")
    slug = re.sub(r"[^\w.\-]+", "-", "_".join(word for word in words if word)).strip("-.")[:_LONGEST_SLUG]
    return Trial(f"{slug}-{content_hash[:10]}", scenario, prepared.trace_key, case, settings)


def trial_label(case: str | None, settings: Settings, seed: int) -> str:
    """Say in a few words what sets a trial apart."""
    words = [case] if case else []
    words += [f"{_short(key, settings)}={_shown(value)}" for key, value in settings.items()]
    return " ".join([*words, f"seed={seed}"])


def _short(key: str, settings: Settings) -> str:
    """Return the last part of a dotted key, or as many parts as tell it from the others."""
    parts = key.split(".")
    for count in range(1, len(parts)):
        tail = parts[-count:]
        if sum(other.split(".")[-count:] == tail for other in settings) == 1 and not tail[0].isdigit():
            return ".".join(tail)
    return key


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        kind = str(value.get("kind", ""))
        rest = ",".join(f"{key}={_shown(inner)}" for key, inner in value.items() if key != "kind")
        return f"{kind}({rest})" if kind and rest else kind or rest
    if isinstance(value, list):
        return "+".join(_shown(item) for item in value)
    return str(value)
