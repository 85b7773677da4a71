"""The head of a study's page: what its cases say, with intervals over the seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fdsim.inspect.summary import hours
from fdsim.report.figure import Tile
from fdsim.report.study_data import StudyData
from fdsim.telemetry.manifest import COMPLETE, ENDED

if TYPE_CHECKING:
    import pandas as pd

#: Up to so many cases the headline tells one by one.
_CASES_TOLD = 4


def status(study: StudyData) -> str:
    """Describe what an unfinished study is missing, or that strategies failed; empty when it is complete."""
    states = [str(trial["status"]) for trial in study.trials]
    if all(state == COMPLETE for state in states):
        return ""
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    unfinished = "" if all(state in ENDED for state in states) else "Unfinished: "
    return f"{unfinished}{len(states)} trials, {counts}."


def rows_of(rows: pd.DataFrame, measure: str = "final_accuracy") -> dict[str, Any]:
    """Return each strategy's row of a measure."""
    chosen = rows[rows["measure"] == measure]
    return {str(row["strategy"]): row for _, row in chosen.iterrows()}


def finding(study: StudyData, cases: list[tuple[str, pd.DataFrame]]) -> str:
    """State every case's result: one by one where they are few, else counted by what their intervals say."""
    if len(cases) <= _CASES_TOLD:
        return " ".join(_case_sentence(study, case, rows) for case, rows in cases)
    told = [(case, rows_of(rows)) for case, rows in cases]
    baseline, hero = study.comparison.baseline, _hero(study, told[0][1])
    rows = [(case, final[hero]) for case, final in told if hero in final]
    accuracy = sorted((float(row["mean"]), case) for case, row in rows if np.isfinite(row["mean"]))
    (low, worst), (high, best) = accuracy[0], accuracy[-1]
    sentence = f"Over {len(told)} cases {hero} ends between {low:.1%} ({worst}) and {high:.1%} ({best})"
    known = [row for _, row in rows if np.isfinite(row.get("difference_t_low", np.nan))]
    if hero != baseline and known:
        ahead = sum(row["difference_t_low"] > 0 for row in known)
        behind = sum(row["difference_t_high"] < 0 for row in known)
        open_ = len(known) - ahead - behind
        sentence += f"; against {baseline} it is ahead in {ahead}, behind in {behind}, undecided in {open_} (95% intervals)"
    return f"{sentence}. {_hardest(hero, cases)}".strip()


def _hardest(strategy: str, cases: list[tuple[str, pd.DataFrame]]) -> str:
    """Tell the course of learning in the case in which a strategy is furthest behind Full on the way."""
    gaps = {case: _mean(rows, "gap_to_full", strategy) for case, rows in cases}
    known = {case: gap for case, gap in gaps.items() if gap is not None}
    if not known:
        return ""
    case = max(known, key=lambda name: known[name])
    return f"Hardest on the way is {case}: {_course(strategy, dict(cases)[case])}."


def _mean(rows: pd.DataFrame, measure: str, strategy: str) -> float | None:
    """Return a strategy's mean of a measure, if it is known."""
    row = rows_of(rows, measure).get(strategy)
    return None if row is None or not np.isfinite(row["mean"]) else float(row["mean"])


def _course(strategy: str, rows: pd.DataFrame) -> str:
    """Tell what the end does not, in means over the seeds: how far behind Full, how low, and for how long."""
    gap, worst, below = (
        _mean(rows, measure, strategy) for measure in ("gap_to_full", "worst_accuracy", "hours_below_full")
    )
    parts = []
    if gap is not None and strategy != "full":
        parts.append(f"{abs(100 * gap):.1f} points {'behind' if gap > 0 else 'ahead of'} full on average")
    if worst is not None:
        parts.append(f"{worst:.1%} at worst after a third of the rounds")
    if below is not None and strategy != "full":
        parts.append(f"{hours(below)} below 90 % of full")
    return ", ".join(parts)


def _hero(study: StudyData, final: dict[str, Any]) -> str:
    """Choose whom a sentence is about: fdms, else the best that is not the upper bound."""
    baseline = study.comparison.baseline
    if "fdms" in final and baseline in final and baseline != "fdms":
        return "fdms"
    rivals = [name for name in final if name != "full"] or list(final)
    return max(rivals, key=lambda name: final[name]["mean"])


def _case_sentence(study: StudyData, case: str, rows: pd.DataFrame) -> str:
    """State a case's final accuracy, with the paired difference and its interval, and the way there."""
    final = rows_of(rows)
    baseline, hero = study.comparison.baseline, _hero(study, final)
    row = final[hero]
    sentence = f"{hero} ends at {row['mean']:.1%}"
    if hero != baseline and np.isfinite(row["difference"]):
        interval = ""
        if np.isfinite(row["difference_t_low"]):
            interval = f" (95% interval {100 * row['difference_t_low']:+.1f} to {100 * row['difference_t_high']:+.1f})"
        sentence += f", {100 * row['difference']:+.1f} points against {baseline}{interval}"
    course = _course(hero, rows)
    return (
        f"{case}: " if case else ""
    ) + f"{sentence.replace('-', '−')}{'; on the way ' if course else ''}{course}."


def tiles(study: StudyData, case: str, rows: pd.DataFrame) -> list[Tile]:
    """Make one tile per strategy, of one case."""
    made = []
    for name, row in rows_of(rows).items():
        spread = (
            f"± {100 * row['sd']:.1f} points over {int(row['n'])} seeds"
            if np.isfinite(row["sd"])
            else "one seed"
        )
        worst, below = (_mean(rows, measure, name) for measure in ("worst_accuracy", "hours_below_full"))
        lines = [
            spread,
            *([] if worst is None else [f"worst after ⅓ {worst:.1%}"]),
            *([] if below is None else [f"below 90 % of full for {hours(below)}"]),
            case,
        ]
        detail = "\n".join(line for line in lines if line)
        made.append(Tile(f"{row['mean']:.1%}", name, detail, swatch=study.looks[name][0]))
    return made
