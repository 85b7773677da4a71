"""The report's figures as plotly figures, for notebooks: what the page's script draws from a payload, drawn in Python.

The payloads are the page's own. A figure of the page has controls; here a keyword chooses: `x="hours"`, `y="loss"`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fdsim.catalogue import nearest
from fdsim.errors import InputError
from fdsim.report.bias import accuracy_by_group, completion_by_group
from fdsim.report.builders import Built, curves, matrix, plain
from fdsim.report.colours import palettes
from fdsim.report.curves import accuracy_figure
from fdsim.report.data import RunData, gather
from fdsim.report.device_day import day_figure
from fdsim.report.figure import Figure, Remark
from fdsim.report.fleet_builders import day, film, gantt, outcomes
from fdsim.report.fleet_film import film_figure
from fdsim.report.friendship import friends_figure, stand_ins_figure
from fdsim.report.look import coloured, whole
from fdsim.report.outcomes import causes_by_hour, causes_by_round, map_figure
from fdsim.report.run_page import run_curves
from fdsim.report.similarity import similarity_figure
from fdsim.report.substitution import error_figure, pairs_figure
from fdsim.report.theory_panel import bound_curves, theory_for
from fdsim.report.timeline import gantt_figure

if TYPE_CHECKING:
    import plotly.graph_objects as go

_BUILDERS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], Built]] = {
    "plain": plain,
    "curves": curves,
    "matrix": matrix,
    "outcomes": outcomes,
    "film": film,
    "gantt": gantt,
    "day": day,
}


def _accuracy(data: RunData) -> Figure | Remark:
    return accuracy_figure(run_curves(data), data.tables.get("target_accuracy"))


def _rounds(data: RunData) -> int:
    return data.outcomes.rounds if data.outcomes is not None else 1


#: What `Run.plot` can draw → the figure of the page, and the choices that the name implies.
FIGURES: dict[str, tuple[Callable[[RunData], Figure | Remark], dict[str, Any]]] = {
    "accuracy": (_accuracy, {}),
    "loss": (_accuracy, {"y": "loss"}),
    "dropout": (causes_by_round, {}),
    "dropout_by_hour": (causes_by_hour, {}),
    "outcomes": (map_figure, {}),
    "fleet": (film_figure, {}),
    "gantt": (gantt_figure, {}),
    "device": (day_figure, {}),
    "completion": (completion_by_group, {}),
    "groups": (accuracy_by_group, {}),
    "friends": (lambda data: friends_figure(run_curves(data), _rounds(data)), {}),
    "similarity": (similarity_figure, {}),
    "stand_ins": (stand_ins_figure, {}),
    "substitution": (
        lambda data: error_figure(run_curves(data), bound_curves(theory_for(data)), _rounds(data)),
        {},
    ),
    "pairs": (lambda data: pairs_figure(run_curves(data)), {}),
}


def plot(folder: Path, what: str, choices: Mapping[str, Any], *, theme: str = "light") -> go.Figure:
    """Return a figure of a run's report as a plotly figure."""
    import plotly.graph_objects as go

    if what not in FIGURES:
        raise InputError("plot", f"no figure called '{what}'" + nearest(what, list(FIGURES)))
    make, implied = FIGURES[what]
    figure = make(gather(folder))
    if isinstance(figure, Remark):
        raise InputError(f"{folder}: plot {what!r}", figure.says)
    choice = _choice(figure, {**implied, **choices})
    traces, layout = _BUILDERS[figure.builder](figure.payload, choice)
    colours = palettes()[theme]
    layout = {"height": figure.height_px, **layout}
    made = go.Figure(
        data=coloured(traces, colours),
        layout=coloured(whole(layout, figure.title), colours),
        skip_invalid=True,
    )
    return made


#: What a reader calls a choice → the page's controls that choose it, the one a figure has.
_CONTROLS = {"strategy": ("set",), "round": ("frame", "round"), "client": ("device",)}
_NUMBERED = ("round", "client")


def _choice(figure: Figure, given: Mapping[str, Any]) -> dict[str, Any]:
    """Choose as the page's controls do, by the first option unless the caller names another by value or text."""
    controls = {control["key"]: control for control in figure.payload.get("controls", [])}
    choice = {key: c["options"][c.get("start", 0)]["value"] for key, c in controls.items()}
    for name, value in given.items():
        key = next((key for key in _CONTROLS.get(name, (name,)) if key in controls), "")
        if not key:
            known = [next((word for word, keys in _CONTROLS.items() if c in keys), c) for c in controls]
            raise InputError("plot", f"{figure.key} has no choice called '{name}'" + nearest(name, known))
        there = controls[key]["options"]
        # Rounds and clients go by their numbers, not by their places in the list.
        options = {_word(name, one["text"]): one["value"] for one in there}
        named = options if name in _NUMBERED else {str(one["value"]): one["value"] for one in there}
        if str(value) not in named | options:
            raise InputError(
                "plot", f"{name}={value!r} is not among the choices", f"there is: {', '.join(named)}"
            )
        choice[key] = (named | options)[str(value)]
    return choice


def _word(name: str, text: str) -> str:
    """Return what names an option: a round's or client's number is followed by what else is known of it."""
    return text.split(",")[0].removeprefix("client ") if name in _NUMBERED else text
