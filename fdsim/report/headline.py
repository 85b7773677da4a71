"""The head of the page: what was run, the main results, and whether anything is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from fdsim.inspect.summary import RunSummary, StrategySummary, hours, summarise
from fdsim.report.data import RunData, strategy_kinds
from fdsim.report.figure import Table, Tile
from fdsim.telemetry.manifest import ENDED
from fdsim.trace import Cause

_CAUSES_NAMED = 3
_ONE_SEED = "This is one seed: differences of a point or two may be luck."


def summary_of(data: RunData) -> RunSummary:
    """Return the same summary that the closing table shows."""
    if data.trace is None:
        trace = pd.DataFrame({"round": [], "outcome": [], "cause": []})
    else:
        trace = data.run.read("trace", columns=["round", "outcome", "cause"])
    return summarise(data.rounds, trace, data.tables.get("target_accuracy"))


def subtitle(tables: Mapping[str, Any], clients: int) -> str:
    """Describe the run in one line."""
    kinds = [str(tables.get(table, {}).get("kind", "")).rsplit(":", 1)[-1] for table in ("data", "net")]
    partition = str(tables.get("data", {}).get("partition", {}).get("kind", "")).rsplit(":", 1)[-1]
    parts = [
        kinds[0] + (f", {partition}" if partition else ""),
        kinds[1],
        f"{clients:,} clients" if clients else "",
    ]
    if "rounds" in tables:
        parts += [f"{tables['rounds']:,} rounds", f"seed {tables.get('seed', '?')}"]
    return " · ".join(part for part in parts if part)


def status_sentence(data: RunData) -> str:
    """Describe what an unfinished run is missing; empty when it is complete."""
    manifest = data.run.manifest
    planned = int(manifest.get("rounds") or 0)
    failed = [
        f"{label} failed after {facts.get('rounds_done', 0)} rounds ({facts.get('message', 'no reason recorded')})"
        for label, facts in manifest["strategies"].items()
        if facts.get("status") == "failed"
    ]
    if data.run.status in ENDED:
        return ("Not every strategy reached the end: " + "; ".join(failed)) if failed else ""
    done = [f"{label} {len(data.of(label))} of {planned}" for label in data.strategies]
    state = {"running": "is still running", "interrupted": "was interrupted", "failed": "failed"}
    message = manifest.get("message")
    why = f" ({message})" if data.run.status == "failed" and message else ""
    return f"Unfinished: this run {state.get(data.run.status, data.run.status)}{why}. Rounds so far: {', '.join(done)}."


def finding(data: RunData, summary: RunSummary) -> str:
    """State the result: final accuracies, and how many clients dropped out."""
    measured = [line for line in summary.strategies if line.final_accuracy is not None]
    dropped = _dropout_sentence(summary) if data.trace is not None else ""
    if not measured:
        return dropped or "Nothing has been evaluated yet."
    kinds = dict(zip(data.strategies, strategy_kinds(data.tables, data.strategies), strict=True))
    hero = _hero(measured, kinds)
    others = [line for line in measured if line is not hero]
    against = _against(hero, others)
    ends = (
        f"{hero.strategy} ends at {hero.final_accuracy:.1%} test accuracy{': ' + against if against else ''}."
    )
    return " ".join(part for part in (ends, _course(hero, measured), dropped, _ONE_SEED) if part)


def _course(hero: StrategySummary, measured: Sequence[StrategySummary]) -> str:
    """Tell what the end does not: how far behind Full on the way, how low, and for how long."""
    parts = []
    if hero.gap_to_full is not None:
        points = 100 * hero.gap_to_full
        side = "behind" if points > 0 else "ahead of"
        parts.append(f"{abs(points):.1f} points {side} full on average")
    if hero.worst_accuracy is not None:
        parts.append(f"never below {hero.worst_accuracy:.1%} after a third of the rounds")
    below = [line for line in measured if line.hours_below_full]
    times = ", ".join(f"{line.strategy} {hours(line.hours_below_full)}" for line in below)
    sentence = f"On the way it is {' and '.join(parts)}." if parts else ""
    return f"{sentence} Time below 90 % of full: {times}.".strip() if times else sentence


def _hero(measured: Sequence[StrategySummary], kinds: Mapping[str, str]) -> StrategySummary:
    """Choose whom the sentence is about: the first fdms, else the best that is not the upper bound."""
    for line in measured:
        if kinds.get(line.strategy) == "fdms":
            return line
    rivals = [line for line in measured if kinds.get(line.strategy) != "full"] or list(measured)
    return max(rivals, key=lambda line: line.final_accuracy or 0.0)


def _against(hero: StrategySummary, others: Sequence[StrategySummary]) -> str:
    parts = []
    for line in others:
        points = 100 * ((hero.final_accuracy or 0.0) - (line.final_accuracy or 0.0))
        if abs(points) < 0.05:
            parts.append(f"level with {line.strategy}")
        else:
            parts.append(f"{abs(points):.1f} points {'above' if points > 0 else 'below'} {line.strategy}")
    return ", ".join(parts)


def _dropout_sentence(summary: RunSummary) -> str:
    causes = [f"{cause.replace('_', ' ')} {frac:.0%}" for cause, frac in summary.causes.items()]
    why = f" ({', '.join(causes[:_CAUSES_NAMED])})" if causes else ""
    if not causes:
        return "No selected client dropped out."
    return f"{summary.dropout_frac:.1%} of the selected clients dropped out{why}."


def result_tiles(data: RunData, summary: RunSummary) -> list[Tile]:
    """Make one tile per strategy."""
    made = []
    for line in summary.strategies:
        if line.final_accuracy is None:
            continue
        lines = [f"best {line.best_accuracy:.1%}, worst after ⅓ {_percent(line.worst_accuracy)}"]
        if line.hours_below_full is not None:
            lines.append(f"below 90 % of full for {hours(line.hours_below_full)}")
        if summary.target_accuracy is not None:
            reached = "never" if line.rounds_to_target is None else f"in round {line.rounds_to_target}"
            lines.append(f"{summary.target_accuracy:.1%} {'reached ' if reached != 'never' else ''}{reached}")
        made.append(
            Tile(
                f"{line.final_accuracy:.1%}",
                line.strategy,
                "\n".join(lines),
                swatch=data.looks[line.strategy][0],
            )
        )
    return made


def cost_tiles(data: RunData, summary: RunSummary) -> list[Tile]:
    """Make the tiles of dropout, simulated time and energy."""
    outcomes = data.outcomes
    if outcomes is None:
        return []
    fractions = [
        (cause.replace("_", " "), frac, f"@{Cause[cause].name}") for cause, frac in summary.causes.items()
    ]
    hours = float(outcomes.round_end_s[-1] - outcomes.round_start_s[0]) / 3600
    value = f"{hours / 24:.1f} days" if hours >= 48 else f"{hours:.1f} h"
    wall_s = float(data.run.manifest.get("wall_s") or 0.0)
    made = [
        Tile(f"{summary.dropout_frac:.1%}", "of the selected clients dropped out", fractions=fractions),
        Tile(value, "simulated time", f"in {wall_s:,.0f} s of wall-clock time" if wall_s else ""),
    ]
    energy_j = float(data.of(data.strategies[0])["energy_j"].sum())
    if energy_j > 0:
        unit, scale = next(
            (u, s) for u, s in (("J", 1.0), ("kJ", 1e3), ("MJ", 1e6)) if energy_j < 1e3 * s or u == "MJ"
        )
        made.append(
            Tile(f"{energy_j / scale:,.3g} {unit}", "spent by the fleet", "on training and transfers")
        )
    return made


def summary_table(data: RunData, summary: RunSummary) -> Table:
    """Lay out a single run's results as a table; confidence intervals need several seeds."""
    target = "" if summary.target_accuracy is None else f" {summary.target_accuracy:.1%}"
    columns = [
        "strategy",
        "final accuracy",
        "best accuracy",
        "worst after ⅓",
        f"rounds to{target}",
        "mean gap to full (points)",
        "time below 90 % of full",
    ]
    errors = any(line.substitution_error is not None for line in summary.strategies)
    columns += ["mean ‖e‖²"] if errors else []
    rows = []
    for line in summary.strategies:
        cells = [line.strategy, _percent(line.final_accuracy), _percent(line.best_accuracy)]
        cells.append(_percent(line.worst_accuracy))
        cells.append("never" if line.rounds_to_target is None else str(line.rounds_to_target))
        cells.append("–" if line.gap_to_full is None else f"{100 * line.gap_to_full:.2f}")
        cells.append(hours(line.hours_below_full))
        if errors:
            cells.append("–" if line.substitution_error is None else f"{line.substitution_error:.3g}")
        rows.append(cells)
    return Table(
        key="comparison",
        title="The strategies side by side",
        says="All strategies learned on the same trace.",
        columns=columns,
        rows=rows,
        swatches=[data.looks[line.strategy][0] for line in summary.strategies],
        remark="Worst after ⅓: the lowest accuracy after a third of the rounds. "
        "One run has one seed: `fdsim study` with several seeds gives confidence intervals.",
    )


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"
