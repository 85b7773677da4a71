"""Show and write comparisons: terminal tables, CSV, Parquet and LaTeX."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from fdsim.comparison.compare import Comparison
from fdsim.comparison.measures import COSTS, QUALITIES
from fdsim.errors import InputError, StorageError

if TYPE_CHECKING:
    from rich.console import Console

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "−": "$-$", ">": "$>$", "–": "--", "Δ": r"$\Delta$",
}  # fmt: skip
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
            comparison.table.to_csv(path, index=False)
        elif kind == ".parquet":
            _plain(comparison.table).to_parquet(path, index=False)
        else:
            path.write_text(latex(comparison), encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{path}: cannot be written ({error.strerror or error})") from None


def _plain(table: pd.DataFrame) -> pd.DataFrame:
    """Turn settings of mixed types or tables, which Parquet columns cannot hold, into text."""
    mixed = [name for name in table.columns if table[name].dtype == object and name not in ("mean", "n")]
    return table.assign(**{name: table[name].map(lambda v: v if v is None else str(v)) for name in mixed})


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print two tables per group, and a footnote on the numbers."""
    from rich.table import Table
    from rich.text import Text

    by = comparison.question.by
    for title, rows in _groups(comparison):
        shown = display_table(comparison, rows)
        # Two narrow tables fit where one wide one would be cut off: first the outcome, then the details.
        ahead = [by, *(name for name in shown.columns if name in _AHEAD or name.startswith("Δ"))]
        rest = [by, *(name for name in shown.columns if name not in ahead)]
        short = shown.assign(**{name: shown[name].str.split(" ±").str[0] for name in rest})
        for heading, part in ((title, shown[ahead]), ("", short[rest])):
            table = Table(title=Text(heading) if heading else None, title_justify="left")
            for name in part.columns:
                table.add_column(name, justify="left" if name == by else "right")
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
    lines = []
    for arm in dict.fromkeys(rows[by]):
        mine = rows[rows[by] == arm].set_index("measure")
        final, recovered = mine.loc["final_accuracy"], mine.loc["final_accuracy", "gap_recovered"]
        line = {by: arm, "n": _repeats(final)}
        for measure in QUALITIES:
            title = "area under curve" if measure.name == "mean_accuracy" else measure.title
            line[title] = _mean_sd(mine.loc[measure.name], measure.digits)
        line[f"Δ final to {comparison.baseline}"] = "–" if arm == comparison.baseline else _difference(final)
        line["gap recovered"] = "–" if pd.isna(recovered) else f"{recovered:.0%}"
        for measure in COSTS:
            if pd.notna(mine.loc[measure.name, "mean"]):
                unit = {"rounds": "rounds", "sim_hours": "hours", "energy_kj": "kJ"}[measure.name]
                line[unit + to_target] = _cost(mine.loc[measure.name], measure.digits)
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
        f"paired {pairing}; to target: median by Kaplan–Meier (repeats that reached it / all); "
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


def _cost(row: Any, digits: int) -> str:
    reached = f" ({int(row['reached'])}/{int(row['n'])})"
    if math.isinf(row["median"]):
        return f"> {row['watched']:.{digits}f}{reached}"
    return f"{row['median']:.{digits}f}{reached}"


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
        parts.append((f"% {title}\n" if title else "") + "\n".join(lines))
    return "\n\n".join(parts) + f"\n\n% {footnote(comparison)}\n"


def _escape(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
