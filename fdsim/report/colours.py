"""The report's colours: one per strategy and one per cause, the same in every figure, in a light and a dark version.

Link causes are blue, power causes warm; within a family the lightness differs. Both versions were
searched for the largest smallest difference between any two colours as seen with normal, protan, deutan and tritan
vision; tests/report/test_colours.py holds them to it.
"""

from __future__ import annotations

from collections.abc import Sequence

Palette = dict[str, str]

CAUSES_LIGHT: Palette = {
    "offline": "#3c64ca",
    "link_lost": "#6a9cf6",
    "outage": "#03117a",
    "metered": "#15cec8",
    "battery_low": "#fa6201",
    "battery_empty": "#65242d",
    "unplugged": "#cc6c9c",
    "in_use": "#5b09ab",
    "deadline": "#edb462",
    "crashed": "#1b1414",
    "scripted": "#6d6467",
    "abandoned": "#216700",
}
CAUSES_DARK: Palette = {
    "offline": "#598ef5",
    "link_lost": "#7ed1fe",
    "outage": "#234d95",
    "metered": "#1a8278",
    "battery_low": "#e26b0b",
    "battery_empty": "#824723",
    "unplugged": "#feabb9",
    "in_use": "#8045cf",
    "deadline": "#eed95c",
    "crashed": "#f5f5f5",
    "scripted": "#979898",
    "abandoned": "#7ac36d",
}

#: Slots in the order they are handed out; a built-in kind always gets the slot of its name, others take what is free.
STRATEGIES_LIGHT: Palette = {
    "full": "#1b201c",
    "fdms": "#1159db",
    "dropout": "#e34b0d",
    "stale": "#1e9d7e",
    "oracle_friends": "#680594",
    "zero": "#fc69c5",
    "fedvarp": "#cbab22",
    "other_1": "#85280a",
    "other_2": "#16585c",
    "other_3": "#8e5c9c",
    "other_4": "#2aa7fc",
}
STRATEGIES_DARK: Palette = {
    "full": "#e8f0fc",
    "fdms": "#22a6fe",
    "dropout": "#ec6105",
    "stale": "#10957f",
    "oracle_friends": "#824ed7",
    "zero": "#fe9cb5",
    "fedvarp": "#ead248",
    "other_1": "#88483e",
    "other_2": "#1f5e90",
    "other_3": "#62fdad",
    "other_4": "#cb6ac3",
}

_PAGE_LIGHT: Palette = {
    "surface": "#ffffff",
    "ink": "#1b1c1e",
    "soft": "#5d6066",
    "grid": "#e9e9e6",
    "axis": "#c9c9c5",
    "completed": "#dcebe3",
    "not_selected": "#f6f6f4",
    "download": "#7fb2d9",
    "train": "#3d6f9e",
    "upload": "#9fcbb4",
    "low": "#f3f7fc",
    "mid": "#7fa9dc",
    "high": "#123a7a",
}
_PAGE_DARK: Palette = {
    "surface": "#161618",
    "ink": "#ececea",
    "soft": "#a2a4a9",
    "grid": "#2a2b2e",
    "axis": "#46484c",
    "completed": "#243b35",
    "not_selected": "#1b1b1d",
    "download": "#3f77a3",
    "train": "#8fc0ea",
    "upload": "#3f8a6d",
    "low": "#17202e",
    "mid": "#3468ad",
    "high": "#cfe3ff",
}

#: One dash per slot, so that lines differ in both; pixels where plotly has no name for the pattern.
_DASHES = {
    "full": "dash",
    "fdms": "solid",
    "dropout": "dot",
    "stale": "dashdot",
    "oracle_friends": "longdash",
    "zero": "longdashdot",
    "fedvarp": "2px,7px",
    "other_1": "14px,3px",
    "other_2": "7px,3px,2px,3px,2px,3px",
    "other_3": "3px,3px,9px,3px",
    "other_4": "18px,6px,3px,6px",
}


def strategy_looks(labels: Sequence[str], kinds: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Give every strategy its colour token and dash, by kind first so that one kind looks alike in all reports.

    As long as there are slots no two strategies share a colour or a dash; then colours come again, with a dash that
    nobody has.
    """
    slots = list(STRATEGIES_LIGHT)
    taken: dict[str, str] = {}
    for label, kind in zip(labels, kinds, strict=True):
        if kind in slots and kind not in taken.values():
            taken[label] = kind
    # Slots of kinds that are not there, those without a kind first: a reader may know the colours of the kinds.
    free = [slot for slot in reversed(slots) if slot not in taken.values() and slot != "full"]
    free.sort(key=lambda slot: not slot.startswith("other_"))
    looks = {label: (f"@{slot}", _DASHES[slot]) for label, slot in taken.items()}
    for index, label in enumerate(label for label in labels if label not in taken):
        if index < len(free):
            looks[label] = (f"@{free[index]}", _DASHES[free[index]])
        else:
            again = index - len(free)
            looks[label] = (f"@{slots[1 + again % (len(slots) - 1)]}", f"{4 + again}px,4px,1px,4px")
    return {label: looks[label] for label in labels}


def palettes() -> dict[str, Palette]:
    """Return the colours of all tokens in the light and the dark theme."""
    return {
        "light": {**_PAGE_LIGHT, **STRATEGIES_LIGHT, **CAUSES_LIGHT},
        "dark": {**_PAGE_DARK, **STRATEGIES_DARK, **CAUSES_DARK},
    }
