"""The report of a study: cases and seeds together first, then one of its runs as an example."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fdsim.report.curves import accuracy_figure
from fdsim.report.figure import Figure, Listing, Page, Section, Table, Tile, plot_text, rounded
from fdsim.report.friendship import friends_figure, stand_ins_figure
from fdsim.report.headline import subtitle
from fdsim.report.run_page import fleet_sections
from fdsim.report.similarity import similarity_figure
from fdsim.report.study_data import StudyData, case_name
from fdsim.report.substitution import error_figure, pairs_figure

if TYPE_CHECKING:
    import pandas as pd


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
        status=_status(study),
        finding=_finding(study, cases),
        results=_tiles(study, *cases[0]),
        costs=[],
        sections=[
            Section(
                "learning",
                "Learning",
                "What each strategy learned from the same rounds, over all seeds.",
                [accuracy_figure(study.curves), *_final_figure(study, cases), *_tables(study, cases)],
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


def _status(study: StudyData) -> str:
    states = [str(trial["status"]) for trial in study.trials]
    if all(state == "complete" for state in states):
        return ""
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    return f"Unfinished: {len(states)} trials, {counts}."


def _final(rows: pd.DataFrame) -> dict[str, Any]:
    """Return each strategy's row of final accuracies."""
    final = rows[rows["measure"] == "final_accuracy"]
    return {str(row["strategy"]): row for _, row in final.iterrows()}


def _finding(study: StudyData, cases: list[tuple[str, pd.DataFrame]]) -> str:
    """State the first cases' results: final accuracies, with the paired difference and its interval."""
    baseline = study.comparison.baseline
    sentences = []
    for case, rows in cases[:3]:
        final = _final(rows)
        hero = next((name for name in final if name == "fdms"), None)
        if hero is None or hero == baseline or baseline not in final:
            hero = max(
                (n for n in final if n != "full"), key=lambda n: final[n]["mean"], default=next(iter(final))
            )
        row = final[hero]
        sentence = f"{case + ': ' if case else ''}{hero} ends at {row['mean']:.1%}"
        if hero != baseline and np.isfinite(row["difference"]):
            points = 100 * row["difference"]
            interval = ""
            if np.isfinite(row["difference_t_low"]):
                interval = f" (95% interval {100 * row['difference_t_low']:+.1f} to {100 * row['difference_t_high']:+.1f})"
            sentence += f", {points:+.1f} points against {baseline}{interval}"
        sentences.append(sentence.replace("-", "−"))
    return ". ".join(sentences) + "."


def _tiles(study: StudyData, case: str, rows: pd.DataFrame) -> list[Tile]:
    made = []
    for name, row in _final(rows).items():
        spread = (
            f"± {100 * row['sd']:.1f} points over {int(row['n'])} seeds"
            if np.isfinite(row["sd"])
            else "one seed"
        )
        made.append(
            Tile(f"{row['mean']:.1%}", name, f"{spread}\n{case}".strip(), swatch=study.looks[name][0])
        )
    return made


def _final_figure(study: StudyData, cases: list[tuple[str, pd.DataFrame]]) -> list[Figure]:
    """Draw the final accuracy of every strategy in every case, with its interval."""
    if len(cases) < 2:
        return []
    names = list(dict.fromkeys(name for _, rows in cases for name in _final(rows)))
    traces, values = [], list[list[Any]]()
    for name in names:
        found = [(case, _final(rows)[name]) for case, rows in cases if name in _final(rows)]
        mean = np.array([row["mean"] for _, row in found], dtype=float)
        low = np.array([row["low"] for _, row in found], dtype=float)
        high = np.array([row["high"] for _, row in found], dtype=float)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": plot_text(name),
                "x": [plot_text(case) for case, _ in found],
                "y": rounded(mean),
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": rounded(np.nan_to_num(high - mean)),
                    "arrayminus": rounded(np.nan_to_num(mean - low)),
                    "thickness": 1.4,
                    "width": 5,
                },
                "line": {"color": study.looks[name][0], "dash": study.looks[name][1], "width": 2},
                "marker": {"size": 9},
                "hovertemplate": "%{fullData.name} <b>%{y:.1%}</b><extra></extra>",
            }
        )
        values += [
            [case, name, float(row["mean"]), row["low"], row["high"], int(row["n"])] for case, row in found
        ]
    columns = ["case", "strategy", "final_accuracy", "low", "high", "seeds"]
    layout = {
        "hovermode": "x unified",
        "showlegend": True,
        "margin": {"l": 8, "r": 16, "t": 30, "b": 8},
        "xaxis": {"title": "case", "type": "category"},
        "yaxis": {"title": "final test accuracy", "tickformat": ".0%"},
    }
    table = {"columns": columns, "values": [[_plain(row[i]) for row in values] for i in range(len(columns))]}
    return [
        Figure(
            key="final-by-case",
            title="Final accuracy by case",
            says="Mean over the seeds; bars are 95% confidence intervals of the mean (Student's t).",
            builder="plain",
            payload={"traces": traces, "layout": layout, "table": table},
        )
    ]


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _tables(study: StudyData, cases: list[tuple[str, pd.DataFrame]]) -> list[Table]:
    """Lay the comparison out, one table per case."""
    from fdsim.comparison.output import display_table, footnote

    made = []
    for index, (case, rows) in enumerate(cases):
        shown = _main_columns_first(display_table(study.comparison, rows))
        made.append(
            Table(
                key=f"comparison-{index + 1}",
                title="The strategies compared" + (f": {case}" if case else ""),
                says="Paired on seeds and traces, so that all strategies faced the same dropouts.",
                columns=list(shown.columns),
                rows=[[str(value) for value in line] for line in shown.itertuples(index=False)],
                swatches=[study.looks[str(name)][0] for name in shown.iloc[:, 0]],
                remark=footnote(study.comparison) + "." if index == len(cases) - 1 else "",
            )
        )
    return made


def _main_columns_first(shown: pd.DataFrame) -> pd.DataFrame:
    """Move the main columns to the left; a narrow screen has to scroll for the rest."""
    later = [name for name in shown.columns if name in ("best accuracy", "area under curve", "fluctuation")]
    return shown[[*(name for name in shown.columns if name not in later), *later]]


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
