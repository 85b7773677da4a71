"""The report of one run, section by section."""

from __future__ import annotations

from fdsim.report.bias import accuracy_by_group, completion_by_group
from fdsim.report.calibration import calibration_figure, substitutes_table
from fdsim.report.curves import PlottedCurve, accuracy_figure
from fdsim.report.data import RunData
from fdsim.report.device_day import day_figure
from fdsim.report.figure import Listing, Page, Section
from fdsim.report.fleet_film import film_figure
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
from fdsim.report.outcomes import causes_by_hour, causes_by_round, map_figure
from fdsim.report.similarity import similarity_figure
from fdsim.report.substitution import error_figure, pairs_figure
from fdsim.report.theory_panel import bound_curves, theory_for, theory_parts
from fdsim.report.timeline import gantt_figure


def run_page(data: RunData) -> Page:
    """Lay out the report of one run."""
    summary = summary_of(data)
    clients = data.outcomes.clients if data.outcomes is not None else 0
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
                "What each strategy learned from the same rounds.",
                [
                    accuracy_figure(run_curves(data), data.tables.get("target_accuracy")),
                    summary_table(data, summary),
                ],
            ),
            *fleet_sections(data),
            *friend_sections(data),
            Section("origin", "Origin", "What these numbers were made from.", [_scenario_listing(data)]),
        ],
    )


def run_curves(data: RunData) -> list[PlottedCurve]:
    """Return one curve per strategy, of one seed."""
    return [PlottedCurve(label, [data.of(label)], data.looks[label]) for label in data.strategies]


def fleet_sections(data: RunData) -> list[Section]:
    """Lay out outcomes, causes and the devices behind them."""
    return [
        Section(
            "outcomes",
            "Outcomes",
            "Which clients completed, which dropped out, and why.",
            [map_figure(data), causes_by_round(data), causes_by_hour(data)],
        ),
        Section(
            "devices",
            "Devices",
            "The rounds from a device's point of view.",
            [film_figure(data), gantt_figure(data), day_figure(data)],
        ),
        Section(
            "bias",
            "Bias",
            "Which data take part less often, and whether the global model serves them worse.",
            [completion_by_group(data), accuracy_by_group(data)],
        ),
    ]


def friend_sections(data: RunData) -> list[Section]:
    """Lay out friends, stand-ins and the cost of substitution."""
    curves, theory = run_curves(data), theory_for(data)
    rounds = data.outcomes.rounds if data.outcomes is not None else 1
    return [
        Section(
            "friends",
            "Friends",
            "Which clients learn alike, who stood in for whom, and whether those were friends.",
            [similarity_figure(data), stand_ins_figure(data), friends_figure(curves, rounds)],
        ),
        Section(
            "substitution",
            "Substitution",
            "The error of substitution, and the cost of finding friends.",
            [
                error_figure(curves, bound_curves(theory), rounds),
                substitutes_table(data),
                calibration_figure(data),
                *theory_parts(theory),
                pairs_figure(curves),
            ],
        ),
    ]


def _scenario_listing(data: RunData) -> Listing:
    """List what is needed to repeat the run and to check that it is the same."""
    manifest = data.run.manifest
    facts = [
        ("scenario", data.name),
        ("seed", str(manifest.get("seed", ""))),
        ("scenario hash", str(manifest.get("scenario_hash", ""))),
        ("trace hash", str(manifest.get("trace_hash") or "none yet")),
        ("status", data.run.status),
        ("accelerator", str(manifest.get("accelerator") or "none yet")),
        ("started, ended", f"{manifest.get('started_at', '')}, {manifest.get('ended_at') or 'not yet'}"),
    ]
    versions = manifest.get("versions") or {}
    facts.append(("versions", ", ".join(f"{name} {number}" for name, number in versions.items())))
    text = (data.run.path / "scenario.toml").read_text(encoding="utf-8")
    return Listing(
        "The scenario, versions and hashes",
        "Everything this run depends on, with all defaults.",
        facts,
        text,
    )
