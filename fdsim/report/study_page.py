"""The report of a study: cases and seeds together first, then one of its runs as an example."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fdsim.report.curves import accuracy_figure
from fdsim.report.figure import Listing, Page, Section, Table
from fdsim.report.friendship import friends_figure, stand_ins_figure
from fdsim.report.headline import subtitle
from fdsim.report.run_page import fleet_sections
from fdsim.report.similarity import similarity_figure
from fdsim.report.study_data import StudyData, case_name
from fdsim.report.study_figures import case_figures, pair_figures
from fdsim.report.study_headline import finding, status, tiles
from fdsim.report.substitution import error_figure, pairs_figure

if TYPE_CHECKING:
    import pandas as pd


#: Columns that go into the second table of a case.
_LATER = ("best accuracy", "area under curve", "fluctuation")


def study_page(study: StudyData) -> Page:
    """Lay out the report of a study."""
    seeds = sorted({trial["seed"] for trial in study.trials})
    cases = list(_groups(study))
    tables = study.example.tables
    clients = study.example.outcomes.clients if study.example.outcomes is not None else 0
    swept = f"{len(cases)} cases × {len(seeds)} seeds" if len(cases) > 1 else f"{len(seeds)} seeds"
    example = f"seed {tables.get('seed', '?')}" + (f", {study.example_case}" if study.example_case else "")
    return Page(
        title=study.name,
        subtitle=f"study of {swept} · {subtitle(tables, clients).rsplit(' · ', 1)[0]}",
        status=status(study),
        finding=finding(study, cases),
        results=tiles(study, *cases[0]),
        costs=[],
        sections=[
            Section(
                "learning",
                "Learning",
                "What each strategy learned from the same rounds, over all seeds.",
                [
                    accuracy_figure(study.curves),
                    *case_figures(study, cases),
                    *pair_figures(study),
                    *_tables(study, cases),
                ],
            ),
            Section(
                "substitution",
                "Substitution",
                "The error of substitution, whether friends were found, and the cost of finding them.",
                [
                    friends_figure(study.curves, study.rounds),
                    error_figure(study.curves, [], study.rounds),
                    pairs_figure(study.curves),
                ],
            ),
            Section(
                "friends",
                "Friends",
                f"Which clients learn alike, in one of the runs ({example}).",
                [similarity_figure(study.example), stand_ins_figure(study.example)],
            ),
            *_of_example(fleet_sections(study.example), example),
            Section("origin", "Origin", "What these numbers were made from.", [_study_listing(study)]),
        ],
    )


def _of_example(sections: list[Section], example: str) -> Iterator[Section]:
    for section in sections:
        yield Section(
            section.key, section.title, f"{section.says} One of the runs: {example}.", section.parts
        )


def _groups(study: StudyData) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield each case's rows of the comparison."""
    for settings, rows in study.comparison.by_group():
        case = settings.pop("case", None)
        yield case_name(settings, case), rows


def _tables(study: StudyData, cases: list[tuple[str, pd.DataFrame]]) -> list[Table]:
    """Lay the comparison out, two tables per case: what matters, then the rest; one wide table would not fit a screen."""
    from fdsim.comparison.output import display_table, footnote

    made = []
    for index, (case, rows) in enumerate(cases):
        shown = display_table(study.comparison, rows)
        name = shown.columns[0]
        later = [c for c in shown.columns if c in _LATER or " to 0." in c or " to 1." in c]
        parts = [shown.drop(columns=later), shown[[name, *later]]]
        titles = ["The strategies compared", "More measures"]
        keys = [f"comparison-{index + 1}", f"measures-{index + 1}"]
        remarks = ["", footnote(study.comparison) + "."]
        for key, title, part, remark in zip(keys, titles, parts, remarks, strict=True):
            made.append(
                Table(
                    key=key,
                    title=title + (f": {case}" if case else ""),
                    says="Paired on seeds and traces, so that all strategies faced the same dropouts.",
                    columns=list(part.columns),
                    rows=[[str(value) for value in line] for line in part.itertuples(index=False)],
                    swatches=[study.looks[str(label)][0] for label in part.iloc[:, 0]],
                    remark=remark,
                    case=case if len(cases) > 1 else "",
                )
            )
    return made


def _study_listing(study: StudyData) -> Listing:
    """List a study's trials and its resolved file."""
    facts = [
        ("study", study.name),
        ("fdsim", str(study.about.get("fdsim", ""))),
        ("swept", ", ".join(map(str, study.about.get("swept", []))) or "seeds only"),
        ("last change", str(study.about.get("updated_at", ""))),
    ]
    facts += [
        (
            f"trial {trial['id']}",
            f"{trial['status']}, scenario {trial['scenario_hash']}, in {trial['folder']}",
        )
        for trial in study.trials
    ]
    path = study.folder / "study.toml"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return Listing("The study, its trials and hashes", "Every trial is an ordinary run folder.", facts, text)
