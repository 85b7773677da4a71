"""The report of one run, section by section."""

from __future__ import annotations

from fdsim.report.about import scenario_listing
from fdsim.report.bias import accuracy_by_group, participation_figure
from fdsim.report.curves import Curve, accuracy_figure
from fdsim.report.data import RunData
from fdsim.report.device_day import day_figure
from fdsim.report.figure import Page, Section
from fdsim.report.friendship import friends_figure, stand_ins_figure
from fdsim.report.headline import (
    cost_tiles,
    finding,
    result_tiles,
    status_sentence,
    subtitle,
    summary_of,
    summary_table,
)
from fdsim.report.presence import causes_by_hour, causes_by_round, map_figure
from fdsim.report.similarity import similarity_figure
from fdsim.report.substitution import error_figure, pairs_figure
from fdsim.report.theory_panel import bound_curves, theory_for, theory_parts
from fdsim.report.timeline import gantt_figure


def run_page(data: RunData) -> Page:
    """Lay out the report of one run."""
    summary = summary_of(data)
    clients = data.presence.clients if data.presence is not None else 0
    return Page(
        title=data.name,
        subtitle=subtitle(data.tables, clients),
        status=status_sentence(data),
        finding=finding(data, summary),
        results=result_tiles(data, summary),
        costs=cost_tiles(data, summary),
        sections=[
            Section(
                "learning",
                "Learning",
                "What each strategy made of the same rounds.",
                [
                    accuracy_figure(run_curves(data), data.tables.get("target_accuracy")),
                    summary_table(data, summary),
                ],
            ),
            *fleet_sections(data),
            *friend_sections(data),
            Section("origin", "Origin", "What made these numbers.", [scenario_listing(data)]),
        ],
    )


def run_curves(data: RunData) -> list[Curve]:
    """Return one curve per strategy, of one seed."""
    return [Curve(label, [data.of(label)], data.looks[label]) for label in data.strategies]


def fleet_sections(data: RunData) -> list[Section]:
    """Lay out who was there, why not, and what the devices went through."""
    return [
        Section(
            "presence",
            "Presence",
            "Who was there, who was not, and why.",
            [map_figure(data), causes_by_round(data), causes_by_hour(data)],
        ),
        Section(
            "devices",
            "Devices",
            "What the rounds looked like from a device.",
            [gantt_figure(data), day_figure(data)],
        ),
        Section(
            "bias",
            "Bias",
            "Whose data are heard less often, and whether the model serves them worse.",
            [participation_figure(data), accuracy_by_group(data)],
        ),
    ]


def friend_sections(data: RunData) -> list[Section]:
    """Lay out friends, stand-ins and what substitution cost."""
    curves, theory = run_curves(data), theory_for(data)
    rounds = data.presence.rounds if data.presence is not None else 1
    return [
        Section(
            "friends",
            "Friends",
            "Which clients learn alike, who stood in for whom, and whether that was right.",
            [similarity_figure(data), stand_ins_figure(data), friends_figure(curves, rounds)],
        ),
        Section(
            "substitution",
            "Substitution",
            "How far substitution was from the truth, and what finding friends cost.",
            [error_figure(curves, bound_curves(theory), rounds), *theory_parts(theory), pairs_figure(curves)],
        ),
    ]
