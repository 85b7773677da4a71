"""Curves over rounds, simulated time and energy; bands where there are several seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fdsim.report.figure import Figure, Remark, evenly, rounded

if TYPE_CHECKING:
    import pandas as pd

#: More points than this along a curve are indistinguishable on a screen.
_POINTS = 1000


#: With fewer evaluations the last third is a point or two.
_FEWEST_TO_ZOOM = 6


@dataclass(frozen=True)
class YAxis:
    """A column of the rounds table as a y axis: `words` is percent or number."""

    column: str
    tab: str
    title: str
    words: str = "number"
    floor: float | None = 0.0
    ceiling: float | None = None
    log: bool = False
    whole: bool = False
    """The axis always goes from floor to ceiling."""

    def axis(self) -> dict[str, Any]:
        """Return what the page's script needs to draw the axis."""
        percent = self.words == "percent"
        known = {"floor": self.floor, "ceiling": self.ceiling, "ticks": ".0%" if percent else None}
        about = {
            "title": self.title,
            "words": self.words,
            "format": ".1%" if percent else ".4g",
            "log": self.log,
            "whole": self.whole,
        }
        return {**about, **{key: value for key, value in known.items() if value is not None}}


LEARNING = {
    "accuracy": YAxis("test_accuracy", "Accuracy", "test accuracy", "percent", 0.0, 1.0),
    "loss": YAxis("test_loss", "Test loss", "test loss (cross-entropy)"),
    "train_loss": YAxis("train_loss", "Training loss", "training loss of the active clients"),
}
_X = {
    "round": {"title": "round", "format": "d", "hover": "round %{x}"},
    "hours": {"title": "simulated time (h)", "format": ".1f", "hover": "%{x:.1f} h"},
    "energy": {"title": "energy spent by the fleet so far (kJ)", "format": ".4g", "hover": "%{x:.4g} kJ"},
}


@dataclass(frozen=True)
class PlottedCurve:
    """One strategy's rounds tables, one per seed, and how it looks."""

    strategy: str
    seeds: Sequence[pd.DataFrame]
    look: tuple[str, str]
    case: str = ""


def accuracy_figure(curves: Sequence[PlottedCurve], target_accuracy: float | None = None) -> Figure | Remark:
    """Draw the learning curves of a run, or of a study's cases with a band over the seeds."""
    series = [one for curve in curves if (one := series_of(curve, LEARNING, evaluated=True)) is not None]
    if not series:
        return Remark("Accuracy over rounds, simulated hours and joules", "No round has been evaluated yet.")
    tabs = [("round", "Rounds"), ("hours", "Simulated time")]
    if all("energy" in one["x"] for one in series):
        tabs.append(("energy", "Energy"))
    controls = [*_case_control(curves), *_tab_controls(series, LEARNING)]
    controls.append(
        {"key": "x", "label": "over", "kind": "tabs", "options": [{"value": v, "text": t} for v, t in tabs]}
    )
    if max(len(one["x"]["round"]) for one in series) >= _FEWEST_TO_ZOOM:
        options = [{"value": "all", "text": "All rounds"}, {"value": "late", "text": "Last third"}]
        controls.append({"key": "zoom", "label": "", "kind": "tabs", "options": options})
    return Figure(
        key="accuracy",
        title="Accuracy over rounds, simulated hours and joules",
        says=f"Accuracy and loss of the global model under each strategy.{_band_sentence(curves)}",
        builder="curves",
        payload=_payload(series, LEARNING, controls, target=target_accuracy),
        remark=""
        if target_accuracy is None
        else f"The dotted line is the target accuracy, {target_accuracy:.1%}.",
        height_px=430,
    )


def measure_figure(
    about: tuple[str, str, str],
    curves: Sequence[PlottedCurve],
    measures: Mapping[str, YAxis],
    *,
    smooth: int = 1,
    **extra: Any,
) -> Figure | None:
    """Draw columns of the rounds table over the rounds; `about` is key, title and sentence. None without data."""
    series = [one for curve in curves if (one := series_of(curve, measures, smooth=smooth)) is not None]
    if not series:
        return None
    key, title, says = about
    if smooth > 1:
        says += f" Moving average over {smooth} rounds."
    controls = [*_case_control(curves), *_tab_controls(series, measures)]
    controls.append(
        {"key": "x", "label": "", "kind": "tabs", "options": [{"value": "round", "text": "Rounds"}]}
    )
    payload = _payload(series, measures, controls, **extra)
    return Figure(key, title, says + _band_sentence(curves), "curves", payload, height_px=380)


def _payload(
    series: list[dict[str, Any]],
    measures: Mapping[str, YAxis],
    controls: list[dict[str, Any]],
    **extra: Any,
) -> dict[str, Any]:
    return {
        "series": series,
        "x": _X,
        "y": {key: measure.axis() for key, measure in measures.items()},
        "banded": any("lo" in y for one in series for y in one["y"].values()),
        "cases": any(one["case"] for one in series),
        "controls": controls,
        **extra,
    }


def _case_control(curves: Sequence[PlottedCurve]) -> list[dict[str, Any]]:
    cases = list(dict.fromkeys(curve.case for curve in curves if curve.case))
    options = [{"value": case, "text": case} for case in cases]
    return [{"key": "case", "label": "case", "kind": "select", "options": options}] if cases else []


def _tab_controls(series: list[dict[str, Any]], measures: Mapping[str, YAxis]) -> list[dict[str, Any]]:
    there = [key for key in measures if any(key in one["y"] for one in series)]
    kind = "tabs" if len(there) <= 3 else "select"
    options = [{"value": key, "text": measures[key].tab} for key in there]
    return [{"key": "y", "label": "", "kind": kind, "options": options}]


def _band_sentence(curves: Sequence[PlottedCurve]) -> str:
    seeds = max((len(curve.seeds) for curve in curves), default=1)
    if seeds < 2:
        return ""
    return f" The line is the mean over {seeds} seeds, the band one standard deviation to either side."


def series_of(
    curve: PlottedCurve, measures: Mapping[str, YAxis], *, evaluated: bool = False, smooth: int = 1
) -> dict[str, Any] | None:
    """Turn a strategy's tables into numbers to draw, or None where there are none.

    With `evaluated`, only the rounds in which the model was tested are kept.
    """
    tables = [table for table in curve.seeds if len(table)]
    columns = {key: m.column for key, m in measures.items() if tables and all(m.column in t for t in tables)}
    if not columns:
        return None
    # Seeds of an unfinished study may differ in length: a curve goes as far as all its seeds do.
    length = min(len(table) for table in tables)

    def over_seeds(column: str) -> np.ndarray:
        return np.stack(
            [table[column].to_numpy(dtype=np.float64, na_value=np.nan)[:length] for table in tables]
        )

    wanted = np.arange(length)
    if evaluated:
        # Rounds that were not evaluated would only leave holes.
        tested = np.flatnonzero(np.isfinite(over_seeds("test_accuracy")).all(axis=0))
        wanted = tested if len(tested) else wanted
    keep = wanted[evenly(len(wanted), _POINTS)]
    measured: dict[str, dict[str, Any]] = {}
    for key, column in columns.items():
        values = np.stack([_rolling(row, smooth) for row in over_seeds(column)])[:, keep]
        if not np.isfinite(values).all(axis=0).any():
            continue
        mid = values.mean(axis=0)
        measured[key] = {"mid": rounded(mid)}
        if len(tables) > 1:
            spread = values.std(axis=0, ddof=1)
            # A band of accuracies does not leave 0 to 100 %.
            limits = measures[key].floor, measures[key].ceiling
            lo, hi = (_within(edge, *limits) for edge in (mid - spread, mid + spread))
            measured[key] |= {"lo": rounded(lo), "hi": rounded(hi)}
    if not measured:
        return None
    x: dict[str, list[Any]] = {
        "round": (tables[0]["round"].to_numpy()[keep] + 1).tolist(),
        "hours": rounded(over_seeds("sim_time_s").mean(axis=0)[keep] / 3600),
    }
    energy_kj = np.nancumsum(over_seeds("energy_j"), axis=1).mean(axis=0) / 1000
    if energy_kj[-1] > 0:
        x["energy"] = rounded(energy_kj[keep])
    colour, dash = curve.look
    return {"name": curve.strategy, "case": curve.case, "colour": colour, "dash": dash, "x": x, "y": measured}


def _within(values: np.ndarray, floor: float | None, ceiling: float | None) -> np.ndarray:
    low, high = (-np.inf if floor is None else floor), (np.inf if ceiling is None else ceiling)
    return np.asarray(np.clip(values, low, high))


def _rolling(values: np.ndarray, window: int) -> np.ndarray:
    """Return means over the last `window` rounds, leaving out those without a value."""
    if window < 2:
        return values
    known = np.isfinite(values)
    sums = np.concatenate([[0.0], np.cumsum(np.where(known, values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(known)])
    first = np.maximum(0, np.arange(len(values)) - window + 1)
    last = np.arange(1, len(values) + 1)
    with np.errstate(invalid="ignore"):
        return np.asarray((sums[last] - sums[first]) / (counts[last] - counts[first]))
