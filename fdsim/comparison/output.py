"""Show and write comparisons: terminal tables, CSV, Parquet and LaTeX."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fdsim.comparison.compare import Comparison
from fdsim.comparison.measures import BESIDE_FULL, COSTS, QUALITIES, Measure
from fdsim.errors import InputError, StorageError

if TYPE_CHECKING:
    from rich.console import Console

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "−": "$-$", ">": "$>$", "–": "--", "Δ": r"$\Delta$",
}  # fmt: skip
#: Shorter titles for the columns of a table.
_TITLES = {
    "mean_accuracy": "area under curve",
    "worst_accuracy": "worst after ⅓",
    "hours_below_full": "hours < 90 % of full",
}
_UNITS = ("rounds", "hours", "J", "kJ", "MJ")
_AHEAD = ("n", "final accuracy", "gap recovered")


def write_comparison(comparison: Comparison, path: Path) -> None:
    """Write the comparison's table; the file name's suffix selects CSV, Parquet or LaTeX."""
    kind = path.suffix.lower()
    if kind not in (".csv", ".parquet", ".tex"):
        raise InputError(
            str(path),
            f"comparisons cannot be written as '{kind}'",
            "use .csv, .parquet or .tex",
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == ".csv":
            _inert(comparison.table).to_csv(path, index=False)
        elif kind == ".parquet":
            _plain(comparison.table).to_parquet(path, index=False)
        else:
            path.write_text(latex(comparison), encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{path}: cannot be written ({error.strerror or error})") from None


def _inert(table: pd.DataFrame) -> pd.DataFrame:
    """Put a quote before text that a spreadsheet would take for a formula: labels may come from anybody's run."""
    words = [name for name in table.columns if table[name].map(lambda v: isinstance(v, str)).any()]

    def quoted(value: object) -> object:
        return (
            f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
        )

    return table.assign(**{name: table[name].map(quoted) for name in words})


def _plain(table: pd.DataFrame) -> pd.DataFrame:
    """Turn settings of mixed types or tables, which Parquet columns cannot hold, into text."""
    mixed = [name for name in table.columns if table[name].dtype == object and name not in ("mean", "n")]
    return table.assign(**{name: table[name].map(lambda v: v if v is None else str(v)) for name in mixed})


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print three tables per group, and a footnote on the numbers."""
    from rich.table import Table
    from rich.text import Text

    by = comparison.question.by
    for title, rows in _groups(comparison):
        shown = display_table(comparison, rows)
        # Narrow tables fit where one wide one would be cut off: the outcome, the course of learning, the costs.
        ahead = [by, *(name for name in shown.columns if name in _AHEAD or name.startswith("Δ"))]
        costs = [by, *(name for name in shown.columns if name.split(" ")[0] in _UNITS and " to " in name)]
        rest = [by, *(name for name in shown.columns if name not in (*ahead, *costs))]
        short = shown.assign(**{name: shown[name].str.split(" ±").str[0] for name in rest})
        for heading, part in ((title, shown[ahead]), ("", short[rest]), ("", shown[costs])):
            if len(part.columns) < 2:
                continue
            table = Table(title=Text(heading) if heading else None, title_justify="left")
            for name in part.columns:
                table.add_column(
                    name, justify="left" if name == by else "right", overflow="fold", no_wrap=" " not in name
                )
            for line in part.itertuples(index=False):
                table.add_row(*(Text(str(value)) for value in line))
            console.print(table)
    console.print(footnote(comparison), markup=False, highlight=False, soft_wrap=True)


def _groups(comparison: Comparison) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the title and the rows of each group."""
    for settings, rows in comparison.by_group():
        yield ", ".join(f"{name} = {value}" for name, value in settings.items()), rows


def display_table(comparison: Comparison, rows: pd.DataFrame) -> pd.DataFrame:
    """Lay out one group as text, one line per arm."""
    by = comparison.question.by
    target = rows["target_accuracy"].iloc[0]
    to_target = "" if target is None or pd.isna(target) else f" to {target:.3f}"
    units = {measure.name: _unit(rows, measure) for measure in COSTS}
    lines = []
    for arm in dict.fromkeys(rows[by]):
        mine = rows[rows[by] == arm].set_index("measure")
        final = mine.loc["final_accuracy"]
        line = {by: arm, "n": _repeats(final)}
        for measure in (*QUALITIES, *BESIDE_FULL):
            if measure in QUALITIES or pd.notna(mine.loc[measure.name, "mean"]):
                line[_TITLES.get(measure.name, measure.title)] = _mean_sd(
                    mine.loc[measure.name], measure.digits
                )
        line[f"Δ final to {comparison.baseline}"] = "–" if arm == comparison.baseline else _difference(final)
        line["gap recovered"] = _recovered(final)
        for measure in COSTS:
            if pd.notna(mine.loc[measure.name, "mean"]):
                unit, scale, digits = units[measure.name]
                line[unit + to_target] = _cost(mine.loc[measure.name], scale, digits)
        lines.append(line)
    return pd.DataFrame(lines).fillna("–")


def footnote(comparison: Comparison) -> str:
    """Explain the numbers of a comparison."""
    pairing = (
        "on seed and trace"
        if comparison.table["same_trace"].all()
        else "on seed only, for some: their traces differ"
    )
    return (
        f"mean ± standard deviation over repeats; Δ: mean paired difference to {comparison.baseline} [95 % by Student's t], "
        f"paired {pairing}; gap recovered: of the one between {comparison.question.lower} and "
        f"{comparison.question.upper}, – where the 95 % interval of that contains 0 or is unknown; "
        "worst after ⅓: lowest accuracy after a third of the rounds; hours: simulated; "
        "to target: median by Kaplan–Meier (repeats that reached it / all); "
        "fluctuation: standard deviation of the change between evaluations"
    )


def _repeats(row: Any) -> str:
    failed, incomplete = int(row["failed"]), int(row["incomplete"] - row["failed"])
    notes = [f"{failed} failed"] * bool(failed) + [f"{incomplete} incomplete"] * bool(incomplete)
    return str(int(row["repeats"])) + (f" ({', '.join(notes)})" if notes else "")


def _mean_sd(row: Any, digits: int) -> str:
    if pd.isna(row["mean"]):
        return "–"
    spread = "" if pd.isna(row["sd"]) else f" ± {row['sd']:.{digits}f}"
    return f"{row['mean']:.{digits}f}{spread}"


def _difference(row: Any) -> str:
    if "difference" not in row or pd.isna(row["difference"]):
        return "–"
    interval = ""
    if not pd.isna(row["difference_t_low"]):
        interval = f" [{row['difference_t_low']:+.3f}, {row['difference_t_high']:+.3f}]"
    return f"{row['difference']:+.3f}{interval}".replace("-", "−")


def _recovered(row: Any) -> str:
    """Show a fraction of the gap only where there is one: its interval lies above 0."""
    if pd.isna(row["gap_recovered"]) or not row["gap_low"] > 0:
        return "–"
    return f"{row['gap_recovered']:.0%}".replace("-", "−")


def _unit(rows: pd.DataFrame, measure: Measure) -> tuple[str, float, int]:
    """Return the unit in which a group's costs are shown, what to multiply them by, and the decimals."""
    if measure.name != "energy_kj":
        return {"rounds": "rounds", "sim_hours": "hours"}[measure.name], 1.0, measure.digits
    costs = rows.loc[rows["measure"] == measure.name, ["median", "watched"]].astype(float)
    known = costs["median"].where(np.isfinite(costs["median"]), costs["watched"]).dropna()
    least = known[known > 0].min() if (known > 0).any() else 1.0
    return next(
        (unit, scale, measure.digits)
        for unit, scale in (("MJ", 1e-3), ("kJ", 1.0), ("J", 1e3))
        if least * scale >= 1 or unit == "J"
    )


def _cost(row: Any, scale: float, digits: int) -> str:
    reached = f" ({int(row['reached'])}/{int(row['n'])})"
    if math.isinf(row["median"]):
        return f"> {row['watched'] * scale:.{digits}f}{reached}"
    return f"{row['median'] * scale:.{digits}f}{reached}"


def latex(comparison: Comparison) -> str:
    """Format the comparison as booktabs tables, one per group."""
    parts = []
    shown = [(title, display_table(comparison, rows)) for title, rows in _groups(comparison)]
    for title, table in shown:
        heading = [_escape(name) for name in table.columns]
        lines = [
            r"\begin{tabular}{l" + "r" * (len(heading) - 1) + "}",
            r"\toprule",
            " & ".join(heading) + r" \\",
            r"\midrule",
        ]
        lines += [
            " & ".join(_escape(str(value)) for value in line) + r" \\"
            for line in table.itertuples(index=False)
        ]
        lines += [r"\bottomrule", r"\end{tabular}"]
        parts.append((f"% {_one_line(title)}\n" if title else "") + "\n".join(lines))
    return "\n\n".join(parts) + f"\n\n% {_one_line(footnote(comparison))}\n"


def _one_line(text: str) -> str:
    """Return text that stays within a comment: without line breaks or other control characters."""
    return "".join(character if character.isprintable() else " " for character in text)


def _escape(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in _one_line(text))
