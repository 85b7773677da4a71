"""The look of the page's figures, in a notebook: fonts, axes, and colours in place of their tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
_AXIS = {
    **{"gridcolor": "@grid", "linecolor": "@axis", "tickcolor": "@axis", "zeroline": False},
    **{"automargin": True, "ticks": "outside", "ticklen": 4, "tickfont": {"color": "@soft", "size": 12}},
}
#: What holds data or names is never read as a colour.
_DATA_KEYS = frozenset(
    "x y z base text customdata name legendgroup ticktext tickvals hovertemplate".split()  # noqa: SIM905
)


def whole(layout: dict[str, Any], title: str) -> dict[str, Any]:
    """Complete a layout with the page's fonts, axes and margins."""
    laid_out: dict[str, Any] = {
        "template": "none",
        "font": {"family": _FONT, "size": 13, "color": "@ink"},
        "title": {"text": title, "font": {"size": 15}, "x": 0, "xref": "paper"},
        "paper_bgcolor": "@surface",
        "plot_bgcolor": "@surface",
        "hovermode": "closest",
        "hoverlabel": {
            "bgcolor": "@surface",
            "bordercolor": "@axis",
            "font": {"color": "@ink"},
            "align": "left",
        },
        "xaxis": {},
        "yaxis": {},
        **layout,
    }
    laid_out["legend"] = {
        "orientation": "h",
        "x": 0,
        "y": -0.2,
        "font": {"color": "@soft"},
        **layout.get("legend", {}),
    }
    laid_out["margin"] = {"l": 8, "r": 16, "b": 8, **layout.get("margin", {}), "t": 44}
    for key in ("xaxis", "yaxis", "xaxis2", "yaxis2"):
        if key in laid_out:
            axis = {**_AXIS, **{name: value for name, value in laid_out[key].items() if value is not None}}
            title = axis.get("title", "")
            text = title if isinstance(title, dict) else {"text": title}
            laid_out[key] = {
                **axis,
                "title": {"standoff": 10, "font": {"color": "@soft", "size": 13}, **text},
            }
    return laid_out


def coloured(value: Any, colours: Mapping[str, str]) -> Any:
    """Put colours in place of tokens: "@fdms" is one of the palette, "@fdms/0.2" the same with that opacity."""
    if isinstance(value, str) and value.startswith("@"):
        token, _, alpha = value[1:].partition("/")
        if token not in colours:
            return value
        red, green, blue = (int(colours[token][at : at + 2], 16) for at in (1, 3, 5))
        return f"rgba({red},{green},{blue},{alpha})" if alpha else colours[token]
    if isinstance(value, Mapping):
        return {k: inner if k in _DATA_KEYS else coloured(inner, colours) for k, inner in value.items()}
    if isinstance(value, list | tuple):
        return [coloured(inner, colours) for inner in value]
    return value
