"""Compare strategies or settings: paired on seeds and traces, counting those that never reach the target.

    comparison = compare(curves_of(["studies/alpha"]))
    comparison.table        # one row per group, strategy and measure, ready for pandas

The *arms* of a comparison are the values of one column, `by`: strategies as a rule, or a swept setting. Everything else
that differs makes the *groups*; arms are only compared inside their group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from fdsim.catalogue import nearest
from fdsim.comparison.curves import Curves
from fdsim.comparison.measures import BESIDE_FULL, COSTS, QUALITIES, Cost, Curve, Measure
from fdsim.comparison.statistics import (
    NO_INTERVAL,
    describe,
    gap_recovered,
    paired_difference,
    restricted,
    summarise_costs,
)
from fdsim.errors import InputError

#: The default target accuracy of a group: this fraction of the best arm's mean final accuracy.
TARGET_FRAC = 0.95
#: Measures whose gap between the lower and the upper bound can be recovered in part.
_RECOVERABLE = ("final_accuracy", "best_accuracy", "mean_accuracy")


@dataclass(frozen=True)
class Question:
    """What to compare: the arms of a column, against a baseline, up to a target accuracy."""

    by: str = "strategy"
    against: str | None = None
    """The baseline arm; dropout where there is one, else the first."""
    target_accuracy: float | None = None
    lower: str = "dropout"
    upper: str = "full"
    """Arms whose gap is the one to recover."""


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison: one row per group, arm and measure."""

    question: Question
    baseline: str
    groups: tuple[str, ...]
    """Columns that tell groups apart."""
    table: pd.DataFrame
    repeats: pd.DataFrame
    """One row per curve: every measure of every repeat."""

    def by_group(self) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
        """Yield the settings of each group and its rows of the table."""
        return _split(self.table, self.groups)


def compare(curves: Curves, question: Question | None = None) -> Comparison:
    """Compare the arms of each group with the baseline, pair by pair."""
    question = question or Question()
    columns = ("strategy", *curves.settings)
    if question.by not in columns:
        raise InputError(
            f"by '{question.by}'", "there is no such column" + nearest(question.by, list(columns))
        )
    about = curves.about.assign(arm=curves.about[question.by].astype(str))
    groups = tuple(name for name in columns if name != question.by and not _follows(about, name))
    if question.by == "strategy":
        groups = curves.settings
    arms = list(dict.fromkeys(about["arm"]))
    baseline = _baseline(question, arms)
    rows: list[dict[str, object]] = []
    repeats: list[pd.DataFrame] = []
    for group, part in _split(about, groups):
        target = question.target_accuracy or _target(curves, part)
        measured = _measure(curves, part, target, question.upper)
        repeats.append(measured)
        for row in _rows(measured, arms, baseline, question):
            rows.append({**group, question.by: row.pop("arm"), "target_accuracy": target, **row})
    return Comparison(question, baseline, groups, pd.DataFrame(rows), pd.concat(repeats, ignore_index=True))


def _split(table: pd.DataFrame, columns: Sequence[str]) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Yield the values of `columns` and the rows that have them, in order of appearance."""
    if not columns:
        yield {}, table
        return
    # Rows are grouped by text: tables and lists among the settings cannot be dictionary keys.
    keys = table[list(columns)].astype(str).agg("|".join, axis=1)
    for _, rows in table.groupby(keys, sort=False):
        yield {name: rows.iloc[0][name] for name in columns}, rows


def _follows(about: pd.DataFrame, name: str) -> bool:
    """Tell whether a column changes only with the arm, as the settings of a case change with the case."""
    return bool((about[name].astype(str).groupby(about["arm"]).nunique() == 1).all())


def _baseline(question: Question, arms: list[str]) -> str:
    if question.against is not None:
        if question.against not in arms:
            raise InputError(
                f"against '{question.against}'", "no curve has that name" + nearest(question.against, arms)
            )
        return question.against
    return question.lower if question.lower in arms else arms[0]


def _target(curves: Curves, part: pd.DataFrame) -> float | None:
    """Return the scenarios' target if they agree on one, else `TARGET_FRAC` of the best mean final accuracy."""
    named = set(part["target_accuracy"].dropna())
    if len(named) == 1 and part["target_accuracy"].notna().all():
        return float(named.pop())
    final = [curves.curves[index].qualities()["final_accuracy"] for index in part.index]
    means = pd.Series(final, index=part["arm"]).groupby(level=0).mean().dropna()
    return TARGET_FRAC * float(means.max()) if len(means) else None


def _measure(curves: Curves, part: pd.DataFrame, target: float | None, upper: str) -> pd.DataFrame:
    records = []
    fulls = _curves_of_upper(curves, upper)
    for index in part.index:
        curve = curves.curves[index]
        record: dict[str, object] = {
            **part.loc[index].to_dict(),
            "complete": curve.complete,
            **curve.qualities(),
            **{measure.name: float("nan") for measure in BESIDE_FULL},
        }
        full = fulls.get(_repeat(curves, index))
        if full is not None and curve.complete and full.complete:
            record |= curve.beside(full)
        for measure in COSTS:
            cost = Cost(float("nan"), reached=False) if target is None else curve.cost(measure.name, target)
            record[measure.name] = cost.value
            record[f"{measure.name}_reached"] = cost.reached
            record[f"{measure.name}_watched"] = curve.watched(measure.name)
        records.append(record)
    return pd.DataFrame(records)


def _repeat(curves: Curves, index: Any) -> tuple[str, ...]:
    """Tell which repeat a curve belongs to: its seed and settings, under whatever strategy."""
    return tuple(str(curves.about.loc[index, name]) for name in ("seed", *curves.settings))


def _curves_of_upper(curves: Curves, upper: str) -> dict[tuple[str, ...], Curve]:
    """Return the upper bound's curve of each repeat that has one."""
    theirs = curves.about.index[curves.about["strategy"].astype(str) == upper]
    return {_repeat(curves, index): curves.curves[index] for index in theirs}


def _rows(
    measured: pd.DataFrame, arms: Sequence[str], baseline: str, question: Question
) -> list[dict[str, object]]:
    """Make the rows of one group."""
    twice = measured.duplicated(["arm", "seed"])
    if twice.any():
        first = measured[twice].iloc[0]
        raise InputError(
            str(first["folder"]),
            f"a second curve of '{first['arm']}' with seed {first['seed']}",
            "pass every run once",
        )
    by_arm = {
        arm: measured[measured["arm"] == arm].set_index("seed")
        for arm in arms
        if (measured["arm"] == arm).any()
    }
    seeds = sorted(set(measured["seed"]))
    rows: list[dict[str, object]] = []
    for arm, mine in by_arm.items():
        theirs = by_arm.get(baseline)
        common = [
            seed for seed in seeds if theirs is not None and seed in mine.index and seed in theirs.index
        ]
        # Pairs that did not learn on the same trace are still paired by seed, and the table says so.
        same_trace = theirs is not None and bool(
            (mine["trace_hash"].loc[common] == theirs["trace_hash"].loc[common]).all()
        )
        start = {
            "arm": arm,
            "repeats": len(mine),
            "incomplete": int((~mine["complete"]).sum()),
            "failed": int(mine["failed"].sum()),
        }
        for measure in (*QUALITIES, *BESIDE_FULL):
            rows.append(
                {
                    **start,
                    "measure": measure.name,
                    **_quality(mine[measure.name], by_arm, measure, question),
                }
            )
            if theirs is not None:
                rows[-1] |= _difference(mine[measure.name].loc[common], theirs[measure.name].loc[common])
            rows[-1]["same_trace"] = same_trace
        for measure in COSTS:
            horizon = _horizon(measured, measure.name)
            rows.append({**start, "measure": measure.name, **_cost(mine, measure.name, horizon)})
            if theirs is not None:
                rows[-1] |= _difference(
                    restricted(_costs(mine.loc[common], measure.name), horizon),
                    restricted(_costs(theirs.loc[common], measure.name), horizon),
                )
            rows[-1]["same_trace"] = same_trace
    return rows


def _quality(
    values: pd.Series, by_arm: dict[str, pd.DataFrame], measure: Measure, question: Question
) -> dict[str, object]:
    name, sample = measure.name, describe(values.to_numpy())
    mean = sample.interval.within(measure.lowest, measure.highest)
    frac, interval, gap = float("nan"), NO_INTERVAL, NO_INTERVAL
    lower, upper = by_arm.get(question.lower), by_arm.get(question.upper)
    if name in _RECOVERABLE and lower is not None and upper is not None:
        common = [s for s in values.index if s in lower.index and s in upper.index]
        sides = [side.loc[common].to_numpy(dtype=np.float64) for side in (values, lower[name], upper[name])]
        frac, interval = gap_recovered(*sides)
        gap = paired_difference(sides[2], sides[1]).t_interval
    return {
        "n": sample.n,
        "mean": sample.mean,
        "sd": sample.sd,
        "low": mean.low,
        "high": mean.high,
        "gap_recovered": frac,
        "gap_recovered_low": interval.low,
        "gap_recovered_high": interval.high,
        "gap_low": gap.low,
        "gap_high": gap.high,
    }


def _costs(rows: pd.DataFrame, name: str) -> list[Cost]:
    return [Cost(float(v), bool(r)) for v, r in zip(rows[name], rows[f"{name}_reached"], strict=True)]


def _horizon(measured: pd.DataFrame, name: str) -> float:
    """Return the cost up to which every complete repeat of the group was observed."""
    watched = measured.loc[measured["complete"], f"{name}_watched"]
    return float(watched.min() if len(watched) else measured[f"{name}_watched"].max())


def _cost(mine: pd.DataFrame, name: str, horizon: float) -> dict[str, object]:
    costs = [cost for cost in _costs(mine, name) if not np.isnan(cost.value)]
    summary = asdict(summarise_costs(costs, horizon))
    return {"n": summary.pop("n"), "mean": summary["restricted_mean"], **summary}


def _difference(values: pd.Series | np.ndarray, baseline: pd.Series | np.ndarray) -> dict[str, object]:
    found = paired_difference(np.asarray(values), np.asarray(baseline))
    return {
        "pairs": found.n,
        "difference": found.mean,
        "difference_sd": found.sd,
        "difference_t_low": found.t_interval.low,
        "difference_t_high": found.t_interval.high,
        "difference_bootstrap_low": found.bootstrap_interval.low,
        "difference_bootstrap_high": found.bootstrap_interval.high,
        "p_value": found.p_value,
    }
