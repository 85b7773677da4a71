"""The report of a study: cases and seeds together first, then one of its runs as an example."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
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
from fdsim.telemetry.manifest import COMPLETE, ENDED

if TYPE_CHECKING:
    import pandas as pd


#: Up to so many cases the headline tells one by one.
_CASES_TOLD = 4
#: Of a study that sweeps many keys, the first pairs have a heat map.
_MOST_PAIRS = 6
#: Columns that go into the second table of a case.
_LATER = ("best accuracy", "area under curve", "fluctuation")
#: The width over which the strategies' points of one case are spread, where cases are 1 apart.
_DODGE = 0.6
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "hexagon")


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
                [
                    accuracy_figure(study.curves),
                    *_final_figure(study, cases),
                    *_pair_figures(study),
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


def _status(study: StudyData) -> str:
    states = [str(trial["status"]) for trial in study.trials]
    if all(state == COMPLETE for state in states):
        return ""
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    unfinished = "" if all(state in ENDED for state in states) else "Unfinished: "
    return f"{unfinished}{len(states)} trials, {counts}."


def _final(rows: pd.DataFrame) -> dict[str, Any]:
    """Return each strategy's row of final accuracies."""
    final = rows[rows["measure"] == "final_accuracy"]
    return {str(row["strategy"]): row for _, row in final.iterrows()}


def _finding(study: StudyData, cases: list[tuple[str, pd.DataFrame]]) -> str:
    """State every case's result: one by one where they are few, else counted by what their intervals say."""
    told = [(case, _final(rows)) for case, rows in cases]
    if len(told) <= _CASES_TOLD:
        return ". ".join(_case_sentence(study, case, final) for case, final in told) + "."
    baseline, hero = study.comparison.baseline, _hero(study, told[0][1])
    rows = [(case, final[hero]) for case, final in told if hero in final]
    accuracy = sorted((float(row["mean"]), case) for case, row in rows if np.isfinite(row["mean"]))
    (low, worst), (high, best) = accuracy[0], accuracy[-1]
    sentence = f"Over {len(told)} cases {hero} ends between {low:.1%} ({worst}) and {high:.1%} ({best})"
    known = [row for _, row in rows if np.isfinite(row.get("difference_t_low", np.nan))]
    if hero != baseline and known:
        ahead = sum(row["difference_t_low"] > 0 for row in known)
        behind = sum(row["difference_t_high"] < 0 for row in known)
        open_ = len(known) - ahead - behind
        sentence += f"; against {baseline} it is ahead in {ahead}, behind in {behind}, undecided in {open_} (95% intervals)"
    return sentence + "."


def _hero(study: StudyData, final: dict[str, Any]) -> str:
    """Choose whom a sentence is about: fdms, else the best that is not the upper bound."""
    baseline = study.comparison.baseline
    if "fdms" in final and baseline in final and baseline != "fdms":
        return "fdms"
    rivals = [name for name in final if name != "full"] or list(final)
    return max(rivals, key=lambda name: final[name]["mean"])


def _case_sentence(study: StudyData, case: str, final: dict[str, Any]) -> str:
    """State a case's final accuracy, with the paired difference and its interval."""
    baseline, hero = study.comparison.baseline, _hero(study, final)
    row = final[hero]
    sentence = f"{hero} ends at {row['mean']:.1%}"
    if hero != baseline and np.isfinite(row["difference"]):
        interval = ""
        if np.isfinite(row["difference_t_low"]):
            interval = f" (95% interval {100 * row['difference_t_low']:+.1f} to {100 * row['difference_t_high']:+.1f})"
        sentence += f", {100 * row['difference']:+.1f} points against {baseline}{interval}"
    return (f"{case}: " if case else "") + sentence.replace("-", "−")


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
    """Draw the final accuracy of every strategy in every case, with its interval.

    Cases in the order of one swept number are joined by lines; others have no order that a line could show. The points
    of a case stand side by side, so that none hides another.
    """
    if len(cases) < 2:
        return []
    joined = _ordered(study)
    names = list(dict.fromkeys(name for _, rows in cases for name in _final(rows)))
    traces, values = [], list[list[Any]]()
    for index, name in enumerate(names):
        found = [
            (at, case, _final(rows)[name]) for at, (case, rows) in enumerate(cases) if name in _final(rows)
        ]
        mean = np.array([row["mean"] for *_, row in found], dtype=float)
        low = np.array([row["low"] for *_, row in found], dtype=float)
        high = np.array([row["high"] for *_, row in found], dtype=float)
        # An accuracy lies between 0 and 1, whatever Student's t says of three seeds.
        low, high = np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)
        aside = _DODGE * ((index + 0.5) / len(names) - 0.5)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers" if joined else "markers",
                "name": plot_text(name),
                "x": [at + aside for at, *_ in found],
                "y": rounded(mean),
                "text": [plot_text(case) for _, case, _ in found],
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": rounded(np.nan_to_num(high - mean)),
                    "arrayminus": rounded(np.nan_to_num(mean - low)),
                    "thickness": 1.4,
                    "width": 4,
                    "color": study.looks[name][0],
                },
                "line": {"color": study.looks[name][0], "dash": study.looks[name][1], "width": 1.6},
                "marker": {
                    "size": 9,
                    "color": study.looks[name][0],
                    "symbol": _SYMBOLS[index % len(_SYMBOLS)],
                },
                "hovertemplate": "%{text}<br>%{fullData.name} <b>%{y:.1%}</b><extra></extra>",
            }
        )
        values += [
            [case, name, float(row["mean"]), row["low"], row["high"], int(row["n"])] for _, case, row in found
        ]
    columns = ["case", "strategy", "final_accuracy", "low", "high", "seeds"]
    layout = {
        "showlegend": True,
        "margin": {"l": 8, "r": 16, "t": 30, "b": 8},
        "xaxis": {
            "title": "case",
            "tickvals": list(range(len(cases))),
            "ticktext": [plot_text(case) for case, _ in cases],
            "range": [-0.5, len(cases) - 0.5],
            "showgrid": False,
        },
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


def _ordered(study: StudyData) -> bool:
    """Tell whether the cases are the values of one number, in order."""
    keys = [name for name in study.comparison.groups if name != "case"]
    if len(keys) != 1 or "case" in study.comparison.groups:
        return False
    values = [settings[keys[0]] for settings, _ in study.comparison.by_group()]
    numbers = all(isinstance(v, int | float | np.number) and not isinstance(v, bool) for v in values)
    return numbers and values == sorted(values)


def _pair_figures(study: StudyData) -> list[Figure]:
    """Draw a heat map of final accuracies for each pair of swept keys, one view per strategy."""
    keys = [name for name in study.comparison.groups if name != "case"]
    final = study.comparison.table
    final = final[(final["measure"] == "final_accuracy") & final["mean"].notna()]
    made: list[Figure] = []
    for first, second in list(combinations(keys, 2))[:_MOST_PAIRS]:
        places = {key: list(dict.fromkeys(final[key].map(str))) for key in (first, second)}
        # Keys that move together have no grid to show.
        if len(final[[first, second]].map(str).drop_duplicates()) <= max(map(len, places.values())):
            continue
        views = {
            str(name): _pair_view(rows, first, second, places)
            for name, rows in final.groupby("strategy", sort=False)
        }
        options = [{"value": name, "text": name} for name in views]
        made.append(
            Figure(
                key=f"pair-{len(made) + 1}",
                title=f"Final accuracy by {first} and {second}",
                says="Mean over the seeds, and over whatever else was swept.",
                builder="plain",
                payload={
                    "views": views,
                    "controls": [{"key": "view", "label": "strategy", "kind": "select", "options": options}],
                },
            )
        )
    return made


def _pair_view(rows: pd.DataFrame, first: str, second: str, places: dict[str, list[str]]) -> dict[str, Any]:
    means = rows.groupby([rows[second].map(str), rows[first].map(str)], sort=False)["mean"].mean()
    grid = [[means.get((y, x), np.nan) for x in places[first]] for y in places[second]]
    cells = [[x, y, float(means[(y, x)])] for y in places[second] for x in places[first] if (y, x) in means]
    return {
        "traces": [
            {
                "type": "heatmap",
                "x": [plot_text(x) for x in places[first]],
                "y": [plot_text(y) for y in places[second]],
                "z": [rounded(line) for line in grid],
                "colorscale": [[0, "@low"], [0.5, "@mid"], [1, "@high"]],
                "texttemplate": "%{z:.1%}",
                "xgap": 2,
                "ygap": 2,
                "hovertemplate": "%{x}, %{y}: <b>%{z:.1%}</b><extra></extra>",
                "colorbar": {"tickformat": ".0%", "thickness": 10, "outlinewidth": 0},
            }
        ],
        "layout": {
            "xaxis": {"title": plot_text(first), "type": "category", "showgrid": False},
            "yaxis": {"title": plot_text(second), "type": "category", "showgrid": False},
        },
        "table": {
            "columns": [first, second, "final_accuracy"],
            "values": [[cell[i] for cell in cells] for i in range(3)],
        },
    }


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value


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
