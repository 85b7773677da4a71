"""The head of a study's page: what its cases say, with intervals over the seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fdsim.report.figure import Tile
from fdsim.report.study_data import StudyData

if TYPE_CHECKING:
    import pandas as pd

#: Up to so many cases the headline tells one by one.
_CASES_TOLD = 4


def status(study: StudyData) -> str:
    """Describe what an unfinished study is missing; empty when it is complete."""
    states = [str(trial["status"]) for trial in study.trials]
    if all(state == "complete" for state in states):
        return ""
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    return f"Unfinished: {len(states)} trials, {counts}."


def final_rows(rows: pd.DataFrame) -> dict[str, Any]:
    """Return each strategy's row of final accuracies."""
    final = rows[rows["measure"] == "final_accuracy"]
    return {str(row["strategy"]): row for _, row in final.iterrows()}


def finding(study: StudyData, cases: list[tuple[str, pd.DataFrame]]) -> str:
    """State every case's result: one by one where they are few, else counted by what their intervals say."""
    told = [(case, final_rows(rows)) for case, rows in cases]
    if len(told) <= _CASES_TOLD:
        return ". ".join(_case_sentence(study, case, final) for case, final in told) + "."
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
    return sentence + "."


def _hero(study: StudyData, final: dict[str, Any]) -> str:
    """Choose whom a sentence is about: fdms, else the best that is not the upper bound."""
    baseline = study.comparison.baseline
    if "fdms" in final and baseline in final and baseline != "fdms":
        return "fdms"
    rivals = [name for name in final if name != "full"] or list(final)
    return max(rivals, key=lambda name: final[name]["mean"])


def _case_sentence(study: StudyData, case: str, final: dict[str, Any]) -> str:
    """State a case's final accuracy, with the paired difference and its interval."""
    baseline, hero = study.comparison.baseline, _hero(study, final)
    row = final[hero]
    sentence = f"{hero} ends at {row['mean']:.1%}"
    if hero != baseline and np.isfinite(row["difference"]):
        interval = ""
        if np.isfinite(row["difference_t_low"]):
            interval = f" (95% interval {100 * row['difference_t_low']:+.1f} to {100 * row['difference_t_high']:+.1f})"
        sentence += f", {100 * row['difference']:+.1f} points against {baseline}{interval}"
    return (f"{case}: " if case else "") + sentence.replace("-", "−")


def tiles(study: StudyData, case: str, rows: pd.DataFrame) -> list[Tile]:
    """Make one tile per strategy, of one case."""
    made = []
    for name, row in final_rows(rows).items():
        spread = (
            f"± {100 * row['sd']:.1f} points over {int(row['n'])} seeds"
            if np.isfinite(row["sd"])
            else "one seed"
        )
        made.append(
            Tile(f"{row['mean']:.1%}", name, f"{spread}\n{case}".strip(), swatch=study.looks[name][0])
        )
    return made
