"""A page with pictures of a fit: hours of the day, distributions, and the table; one HTML file without scripts."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from fdsim.devices.fitting.goodness import Row
from fdsim.devices.fitting.statistics import DISTRIBUTIONS, PhoneRecord, hour_profile, pooled
from fdsim.devices.fitting.table import DISTANCES, LEGEND, STATISTICS, cells
from fdsim.rng import stream

_REAL, _SIMULATED = "#1f6feb", "#d1242f"
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 420, 240, 50, 24, 28, 26
_NAMES = {
    "charge": "How long charges last",
    "screen": "How long the screen is on",
    "wifi": "How long Wi-Fi lasts",
    "eligible": "How long phones stay eligible",
    "soc": "State of charge",
}
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:900px;margin:2rem auto;padding:0 1rem;color:#1f2328}"
    "h1{font-size:1.5rem;line-height:1.25;overflow-wrap:anywhere}"
    ".plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,22rem),1fr));gap:.5rem 1rem}"
    "svg{width:100%;height:auto;display:block}.table{overflow-x:auto}table{border-collapse:collapse}"
    "td,th{padding:.2rem .7rem;text-align:right;border-bottom:1px solid #d0d7de;white-space:nowrap}"
    "td:first-child,th:first-child{text-align:left;white-space:normal}.bad{color:#b35900;font-weight:600}"
    "@media(max-width:32rem){body{margin:1rem auto;padding:0 .6rem}h1{font-size:1.2rem}table{font-size:12px}"
    "td,th{padding:.15rem .2rem}td:nth-child(4){white-space:normal}}"
)
_RESAMPLES = 300
#: Lengths are drawn on a logarithmic axis up to here, s.
_LONGEST_S = 1e6


class _Axis(NamedTuple):
    """What an axis goes up to, from 0, and its marks: (place, label)."""

    top: float
    marks: Sequence[tuple[float, str]]


_HOURS = _Axis(24.0, [(hour, f"{hour}:00") for hour in (0, 6, 12, 18, 24)])
_SHARES = _Axis(1.0, [(0.0, "0 %"), (0.25, "25 %"), (0.5, "50 %"), (0.75, "75 %"), (1.0, "100 %")])
_LENGTHS = _Axis(
    math.log10(_LONGEST_S),
    [(math.log10(s), word) for s, word in ((1, "1 s"), (60, "1 min"), (3600, "1 h"), (86_400, "1 day"))],
)


def page(
    title: str, rows: Sequence[Row], real: Sequence[PhoneRecord], simulated: Sequence[PhoneRecord]
) -> str:
    """Return the page as HTML."""
    pictures = [_hours(real, simulated)]
    for name in DISTRIBUTIONS:
        values = [pooled(phones, name) for phones in (real, simulated)]
        if all(len(v) for v in values):
            pictures.append(_distribution(name, values))
    good = sum(row.good for row in rows)
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style><h1>{html.escape(title)}</h1>"
        f"<p>{len(real)} real phones (<b style='color:{_REAL}'>blue</b>) and {len(simulated)} simulated ones "
        f"(<b style='color:{_SIMULATED}'>red</b>). Shaded: the 90 % bootstrap interval over the real phones. "
        "The other curves say which share of all spells is no longer, or of all time no fuller, than below.</p>"
        f"<div class=plots>{''.join(pictures)}</div>"
        f"<p>{good} of {len(rows)} statistics and distances are good. {html.escape(LEGEND)}</p>"
        f"<div class=table><table>{_rows(rows)}</table></div></html>\n"
    )


def _rows(rows: Sequence[Row]) -> str:
    lines = []
    for is_distance, group in groupby(rows, lambda row: row.is_distance):
        lines.append("".join(f"<th>{word}" for word in (DISTANCES if is_distance else STATISTICS)))
        for row in group:
            texts = "".join(f"<td>{html.escape(text)}" for text in cells(row))
            lines.append(texts if row.good else texts.replace("<td>", "<td class=bad>"))
    return "\n".join(f"<tr>{line}</tr>" for line in lines)


def _hours(real: Sequence[PhoneRecord], simulated: Sequence[PhoneRecord]) -> str:
    """Draw the shares of eligible phones by hour, with how far those of the real ones may be chance."""
    rng = stream(0, "hour profile")
    drawn = [
        hour_profile([real[i] for i in rng.integers(0, len(real), len(real))]) for _ in range(_RESAMPLES)
    ]
    low, high = np.quantile(drawn, [0.05, 0.95], axis=0)
    first, second = hour_profile(real), hour_profile(simulated)
    # An hour's share stands at its middle; the day goes round.
    hours = np.arange(-1, 25) + 0.5
    around = [np.concatenate([p[-1:], p, p[:1]]) for p in (first, second, low, high)]
    at = np.concatenate([[0.0], hours[1:-1], [24.0]])
    curves = [np.interp(at, hours, each) for each in around]
    axis = _up_to(max(float(curve.max()) for curve in curves))
    return _plot(
        "Eligible phones, by hour of the day",
        [(at, c) for c in curves[:2]],
        (_HOURS, axis),
        (at, *curves[2:]),
    )


def _up_to(top: float) -> _Axis:
    """Return an axis of shares for values up to `top`, with round marks."""
    if top <= 0.0:
        return _SHARES
    step = next(s for s in (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25) if top <= 5 * s or s == 0.25)
    count = math.ceil(top / step)
    return _Axis(count * step, [(i * step, f"{100 * i * step:g} %") for i in range(count + 1)])


def _distribution(name: str, values: Sequence[np.ndarray]) -> str:
    steps = np.linspace(0.0, 1.0, 200)
    curves = [np.quantile(v, steps) for v in values]
    if name == "soc":
        return _plot(_NAMES[name], [(c, steps) for c in curves], (_SHARES, _SHARES))
    lengths = [np.log10(np.clip(c, 1.0, _LONGEST_S)) for c in curves]
    return _plot(_NAMES[name], [(c, steps) for c in lengths], (_LENGTHS, _SHARES))


def _plot(
    title: str,
    curves: Sequence[tuple[np.ndarray, np.ndarray]],
    axes: tuple[_Axis, _Axis],
    band: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
) -> str:
    """Draw the curve of the real phones and that of the simulated ones; `band` is x, low and high around the first."""
    across, up = axes
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    base = _TOP + high

    def points(x: np.ndarray, y: np.ndarray) -> str:
        return " ".join(
            f"{_LEFT + wide * a / across.top:.1f},{base - high * b / up.top:.1f}"
            for a, b in zip(x.tolist(), y.tolist(), strict=True)
        )

    drawn = []
    for place, label in up.marks:
        level = base - high * place / up.top
        drawn.append(f'<path d="M{_LEFT} {level:.1f}h{wide}" stroke="#d8dee4"/>')
        drawn.append(f'<text x="{_LEFT - 6}" y="{level + 4:.1f}" text-anchor="end">{label}</text>')
    for place, label in across.marks:
        column = _LEFT + wide * place / across.top
        drawn.append(f'<path d="M{column:.1f} {base}v4" stroke="#8c959f"/>')
        drawn.append(f'<text x="{column:.1f}" y="{base + 18}" text-anchor="middle">{label}</text>')
    if band is not None:
        x, low, top = band
        outline = points(np.concatenate([x, x[::-1]]), np.concatenate([low, top[::-1]]))
        drawn.append(f'<polygon points="{outline}" fill="{_REAL}" fill-opacity=".15"/>')
    for (x, y), colour in zip(curves, (_REAL, _SIMULATED), strict=True):
        drawn.append(f'<polyline points="{points(x, y)}" fill="none" stroke="{colour}" stroke-width="2"/>')
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{html.escape(title)}" font-size="11">'
        f'<text x="{_LEFT}" y="16" font-size="13" font-weight="600">{html.escape(title)}</text>'
        f'{"".join(drawn)}<path d="M{_LEFT} {base}h{wide}" stroke="#8c959f"/></svg>'
    )
