"""The rows of a report as people read them: numbers, what is allowed, and what the columns say."""

from __future__ import annotations

import math

from fdsim.devices.fitting.goodness import HALVES, HOURS_GOOD, KS_GOOD, TOLERANCE_FRAC, Row

#: Headings of the columns, above statistics and above distances.
STATISTICS = ("statistic", "simulated", "real", "allowed", "good")
DISTANCES = ("distance", "from real", "of halves", "allowed", "good")
LEGEND = (
    f"Good is a statistic of the simulated phones within the 90 % bootstrap interval over the real ones, or within "
    f"{TOLERANCE_FRAC:.0%} of their value. Good is a distance of the simulated from the real phones up to {HALVES:g} times "
    f"that between random halves of the real phones, or up to {KS_GOOD:.2f} (hour profile: {HOURS_GOOD:.2f})."
).replace("15%", "15 %")


def cells(row: Row) -> tuple[str, str, str, str, str]:
    """Return a row as texts, one for each column."""
    return row.statistic, number(row.simulated), number(row.real), allowed(row), "yes" if row.good else "no"


def number(value: float) -> str:
    """Write a number with about three digits that count, thousands apart, and "–" for none."""
    if not math.isfinite(value):
        return "–"
    size = abs(value)
    for least, digits in ((999.5, -1), (99.95, 0), (9.995, 1), (0.9995, 2), (0.0005, 3), (0.00005, 4)):
        if size >= least:
            return f"{value:,.0f}".replace(",", " ") if digits < 0 else f"{value:.{digits}f}"
    return "0"


def allowed(row: Row) -> str:
    """Write the values that would be good."""
    if row.is_distance:
        return f"≤ {number(row.high)}"
    return " or ".join(_range(low, high) for low, high in row.ranges)


def _range(low: float, high: float) -> str:
    """Write a range; a dash would be taken for a sign before a negative number."""
    return f"{number(low)} to {number(high)}" if low < 0 else f"{number(low)}–{number(high)}"
