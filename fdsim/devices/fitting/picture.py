"""A page with pictures of a fit: hours of the day, distributions, and the table; one HTML file without scripts."""

from __future__ import annotations

import html
from collections.abc import Sequence

import numpy as np

from fdsim.devices.fitting.goodness import Row
from fdsim.devices.fitting.statistics import DISTRIBUTIONS, PhoneRecord, hour_profile, pooled

_REAL, _SIMULATED = "#1f6feb", "#d1242f"
_WIDTH, _HEIGHT, _LEFT, _TOP = 420, 230, 46, 26
_NAMES = {
    "charge": "Charges, s",
    "screen": "Screen sessions, s",
    "wifi": "Wi-Fi sessions, s",
    "eligible": "Eligible sessions, s",
    "soc": "State of charge",
}
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:900px;margin:2rem auto;padding:0 1rem;color:#1f2328}"
    "table{border-collapse:collapse}td,th{padding:.2rem .7rem;text-align:right;border-bottom:1px solid #d0d7de}"
    "td:first-child,th:first-child{text-align:left}.bad{color:#b35900;font-weight:600}svg{margin:.5rem}"
)


def page(
    title: str, rows: Sequence[Row], real: Sequence[PhoneRecord], simulated: Sequence[PhoneRecord]
) -> str:
    """Return the page as HTML."""
    hours = np.arange(25.0)
    pictures = [
        _plot(
            "Eligible, by hour of the day",
            [(hours, np.append(p, p[0])) for p in (hour_profile(real), hour_profile(simulated))],
            ("0", "12", "24"),
        )
    ]
    for name in DISTRIBUTIONS:
        values = [pooled(phones, name) for phones in (real, simulated)]
        if all(len(v) for v in values):
            pictures.append(_distribution(name, values))
    good = sum(row.good for row in rows)
    body = "\n".join(
        f"<tr{'' if row.good else ' class=bad'}><td>{html.escape(row.statistic)}</td><td>{row.real:.3g}</td>"
        f"<td>{row.low:.3g}–{row.high:.3g}</td><td>{row.simulated:.3g}</td><td>{'yes' if row.good else 'no'}</td></tr>"
        for row in rows
    )
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(title)}</title>"
        f"<style>{_STYLE}</style><h1>{html.escape(title)}</h1>"
        f"<p>{len(real)} real phones (<span style='color:{_REAL}'>blue</span>) and {len(simulated)} simulated ones "
        f"(<span style='color:{_SIMULATED}'>red</span>). {good} of {len(rows)} statistics are good: inside the 90 % "
        "bootstrap interval over the real phones, or within 15 %. A KS distance is good up to 1.5 times that "
        "between two random halves of the real phones, or 0.10.</p>"
        f"{''.join(pictures)}<table><tr><th>statistic<th>real<th>90 % interval<th>simulated<th>good</tr>"
        f"{body}</table></html>\n"
    )


def _distribution(name: str, values: Sequence[np.ndarray]) -> str:
    steps = np.linspace(0.0, 1.0, 200)
    curves = [np.quantile(v, steps) for v in values]
    if name == "soc":
        return _plot(_NAMES[name], [(c * 24.0, steps) for c in curves], ("0", "0.5", "1"))
    # Six powers of ten of seconds over the width.
    return _plot(
        _NAMES[name],
        [(np.log10(np.clip(c, 1.0, 1e6)) * 4.0, steps) for c in curves],
        ("1", "1000", "1 000 000"),
    )


def _plot(title: str, curves: Sequence[tuple[np.ndarray, np.ndarray]], ticks: tuple[str, str, str]) -> str:
    """Draw curves whose x runs from 0 to 24; y from 0 to the greatest value."""
    top = max(float(y.max()) for _, y in curves) or 1.0
    wide, high = _WIDTH - _LEFT - 10, _HEIGHT - _TOP - 26
    lines = []
    for (x, y), colour in zip(curves, (_REAL, _SIMULATED), strict=True):
        points = " ".join(
            f"{_LEFT + wide * a / 24.0:.1f},{_TOP + high * (1 - b / top):.1f}"
            for a, b in zip(x.tolist(), y.tolist(), strict=True)
        )
        lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
    base = _TOP + high
    marks = "".join(
        f'<text x="{_LEFT + wide * i / 2:.0f}" y="{base + 16}" font-size="11" text-anchor="middle">{text}</text>'
        for i, text in enumerate(ticks)
    )
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="{html.escape(title)}">'
        f'<text x="{_LEFT}" y="16" font-size="13">{html.escape(title)}</text>'
        f'<path d="M{_LEFT} {_TOP}V{base}H{_LEFT + wide}" fill="none" stroke="#8c959f"/>'
        f'<text x="{_LEFT - 6}" y="{_TOP + 8}" font-size="11" text-anchor="end">{top:.2g}</text>'
        f"{marks}{''.join(lines)}</svg>"
    )
