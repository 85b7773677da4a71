"""What the figures show is what the tables say."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fdsim
from fdsim.report.bias import Grouping, _of_groups, accuracy_by_group, completion_by_group
from fdsim.report.curves import LEARNING, PlottedCurve, series_of
from fdsim.report.data import RunData, gather
from fdsim.report.figure import Figure, evenly, packed, rounded
from fdsim.report.fleet_film import film_figure
from fdsim.report.friendship import stand_ins_figure
from fdsim.report.headline import finding, summary_of
from fdsim.report.outcomes import causes_by_hour, map_figure
from fdsim.report.similarity import similarity_figure
from fdsim.report.timeline import gantt_figure
from fdsim.trace import Network

KINDS = {"u1": np.uint8, "u2": np.uint16, "i4": np.int32, "f4": np.float32}


@pytest.fixture(scope="module")
def data(tiny: Path) -> RunData:
    return gather(tiny)


def unpacked(pack: dict[str, Any]) -> np.ndarray:
    raw = np.frombuffer(base64.b64decode(pack["bytes"]), dtype=KINDS[pack["kind"]])
    return raw.reshape(pack["shape"])


def drawn(figure: object) -> Figure:
    assert isinstance(figure, Figure)
    return figure


def test_packing_keeps_numbers_and_shape() -> None:
    values = np.array([[1, 2, 300], [4, 5, 6]])
    assert np.array_equal(unpacked(packed(values, "u2")), values)


def test_rounding_turns_nan_into_null() -> None:
    assert rounded([1.23456789, np.nan, 0.0], 3) == [1.23, None, 0.0]


@pytest.mark.parametrize(("count", "most", "expected"), [(3, 5, [0, 1, 2]), (5, 3, [0, 2, 4]), (0, 4, [])])
def test_evenly_spaced_positions_keep_the_ends(count: int, most: int, expected: list[int]) -> None:
    assert evenly(count, most).tolist() == expected


def test_the_map_has_every_outcome_and_cause_of_the_trace(data: RunData, tiny: Path) -> None:
    payload = drawn(map_figure(data)).payload
    words = [word["text"] for word in payload["words"]]
    codes = unpacked(payload["codes"])
    trace = fdsim.open_run(tiny).trace
    for row in trace.itertuples():
        expected = {"completed": "completed", "not_selected": "not selected"}.get(
            str(row.outcome), str(row.cause).replace("_", " ")
        )
        assert words[codes[row.client, row.round]] == expected


def test_causes_by_hour_add_up_to_the_trace(data: RunData, tiny: Path) -> None:
    columns, values = drawn(causes_by_hour(data)).payload["table"].values()
    table = pd.DataFrame(dict(zip(columns, values, strict=True)))
    trace = fdsim.open_run(tiny).trace
    dropped = trace[trace["outcome"] == "dropped"]
    assert table["dropped"].sum() == len(dropped)
    expected = dropped.groupby(
        [(dropped["round_start_s"] % 86400 // 3600).astype(int), "cause"], observed=True
    ).size()
    found = table[table["dropped"] > 0].set_index(["hour", "cause"])["dropped"]
    assert found.sort_index().to_dict() == expected.sort_index().to_dict()


def test_the_gantt_chart_has_the_times_of_the_trace(data: RunData, tiny: Path) -> None:
    payload = drawn(gantt_figure(data)).payload
    columns = {name: unpacked(pack) for name, pack in payload["columns"].items()}
    trace = fdsim.open_run(tiny).trace
    for place in range(len(payload["rounds"])):
        rows = slice(payload["starts"][place], payload["starts"][place + 1])
        told = trace[trace["round"] == payload["rounds"][place] - 1].set_index("client")
        told = told.loc[columns["client"][rows]]
        for name in ("download", "train", "upload"):
            assert columns[name][rows] == pytest.approx(told[f"{name}_s"].fillna(0).to_numpy(), rel=1e-6)
        assert (columns["outcome"][rows] == (told["outcome"] == "dropped")).all()


def test_the_similarity_matrix_is_r_of_the_last_snapshot(data: RunData, tiny: Path) -> None:
    payload = drawn(similarity_figure(data)).payload
    (found,) = payload["sets"]
    frame = found["frames"][-1]
    codes = unpacked(frame["values"]).astype(float)
    values = np.where(codes == 65535, np.nan, found["low"] + codes * found["step"])
    place = {int(label): index for index, label in enumerate(payload["labels"])}
    told = fdsim.open_run(tiny).similarity(strategy="fdms")
    assert len(told) > 0
    for row in told.itertuples():
        first, second = place[row.first], place[row.second]
        assert values[first, second] == pytest.approx(row.similarity, abs=1e-4)
        assert values[second, first] == values[first, second]
        assert unpacked(frame["second"])[first, second] == row.meetings
    assert np.isnan(np.diag(values)).all()


def test_clusters_are_marked_where_they_are(data: RunData) -> None:
    payload = drawn(similarity_figure(data)).payload
    cluster = data.true_cluster
    assert cluster is not None
    of = [cluster[int(label)] for label in payload["labels"]]
    for block in payload["blocks"]:
        inside = set(of[block["from"] : block["to"] + 1])
        assert inside == {int(block["name"].split()[1])}
    assert payload["blocks"][-1]["to"] == len(of) - 1


def test_stand_ins_are_counted_from_the_clients_table(data: RunData, tiny: Path) -> None:
    payload = drawn(stand_ins_figure(data)).payload
    found = next(one for one in payload["sets"] if one["name"] == "fdms")
    codes = unpacked(found["frames"][0]["values"])
    counts = np.where(codes == 65535, 0, np.round(codes * found["step"]))
    clients = fdsim.open_run(tiny).read("clients", strategy="fdms")
    told = clients.dropna(subset=["stand_in"])
    assert len(told) == counts.sum() > 0
    first = told.iloc[0]
    labels = payload["labels"]
    expected = ((told["client"] == first["client"]) & (told["stand_in"] == first["stand_in"])).sum()
    assert counts[labels.index(str(first["client"])), labels.index(str(first["stand_in"]))] == expected


def test_completion_by_device_is_a_mean_of_the_trace(data: RunData, tiny: Path) -> None:
    table = drawn(completion_by_group(data)).payload["views"]["device"]["table"]
    trace = fdsim.open_run(tiny).trace
    completed = (trace["outcome"] == "completed").groupby(trace["client"] // 4).mean()
    assert table["values"][0] == ["midrange_phone", "budget_phone"]
    assert table["values"][1] == pytest.approx(completed.tolist(), rel=1e-5)


def _table(accuracies: list[float]) -> pd.DataFrame:
    rounds = np.arange(len(accuracies))
    return pd.DataFrame(
        {"round": rounds, "sim_time_s": 3600.0 * (rounds + 1), "energy_j": 500.0, "test_accuracy": accuracies}
    ).assign(test_loss=1.0, train_loss=1.0)


def test_a_curve_over_seeds_is_their_mean_with_a_band_of_one_standard_deviation() -> None:
    curve = PlottedCurve("fdms", [_table([0.1, 0.5]), _table([0.3, 0.7, 0.9])], ("@fdms", "solid"))
    found = series_of(curve, LEARNING, evaluated=True)
    assert found is not None
    # The second seed is one round ahead: the curve goes as far as both do.
    assert found["x"]["round"] == [1, 2]
    assert found["x"]["hours"] == [1.0, 2.0]
    assert found["x"]["energy"] == [0.5, 1.0]
    accuracy = found["y"]["accuracy"]
    assert accuracy["mid"] == pytest.approx([0.2, 0.6])
    assert accuracy["hi"] == pytest.approx([0.2 + 0.02**0.5, 0.6 + 0.02**0.5], rel=1e-4)


def test_rounds_without_evaluation_leave_no_holes() -> None:
    found = series_of(
        PlottedCurve("a", [_table([0.1, np.nan, 0.3])], ("@fdms", "solid")), LEARNING, evaluated=True
    )
    assert found is not None
    assert found["x"]["round"] == [1, 3]
    assert found["y"]["accuracy"]["mid"] == [0.1, 0.3]
    assert "lo" not in found["y"]["accuracy"]


def test_the_finding_states_the_final_accuracies(data: RunData) -> None:
    summary = summary_of(data)
    final = {line.strategy: line.final_accuracy for line in summary.strategies}
    text = finding(data, summary)
    assert text.startswith(f"fdms ends at {final['fdms']:.1%} test accuracy")
    assert f"{summary.dropout_frac:.1%} of the selected clients dropped out" in text


def test_accuracy_by_class_is_what_the_clients_accuracies_say() -> None:
    """Three clients with different mixes of two labels, whose accuracies are 0.9 and 0.5."""
    counts = np.array([[10.0, 0.0], [5.0, 5.0], [2.0, 8.0]])
    seen = np.array([0.9, 0.7, 0.58])
    by_class = _of_groups(Grouping("class", ["class 0", "class 1"], counts), seen)
    assert by_class == pytest.approx([0.9, 0.5])
    by_device = _of_groups(Grouping("device", ["a", "b"], np.array([[1.0, 0], [1, 0], [0, 1]])), seen)
    assert by_device == pytest.approx([0.8, 0.58])


def test_classes_that_no_client_tells_apart_have_no_accuracy() -> None:
    alike = np.array([[5.0, 5.0], [6.0, 6.0]])
    assert _of_groups(Grouping("class", ["class 0", "class 1"], alike), np.array([0.7, 0.7])) is None


def test_accuracy_by_group_agrees_with_the_clients_table(data: RunData, tiny: Path) -> None:
    views = drawn(accuracy_by_group(data)).payload["views"]
    columns, values = views["device"]["table"].values()
    table = pd.DataFrame(dict(zip(columns, values, strict=True))).set_index(["device", "strategy"])[
        "accuracy"
    ]
    clients = fdsim.open_run(tiny).read("clients", rounds=(5, 5), strategy="fdms")
    expected = clients.groupby(clients["client"] // 4)["test_accuracy"].mean()
    assert table["midrange_phone", "fdms"] == pytest.approx(expected[0], rel=1e-4)
    assert table["budget_phone", "fdms"] == pytest.approx(expected[1], rel=1e-4)


def test_the_film_says_what_devices_do_that_are_not_selected(make_run: Callable[..., Path]) -> None:
    """Half of the phones are selected; the others' tiles agree with the last events before the round."""
    folder = make_run(
        server={"round_interval_s": 7200.0, "selection": {"kind": "random", "frac": 0.5}},
        strategies=[{"kind": "dropout"}],
    )
    data = gather(folder)
    figure = film_figure(data)
    assert isinstance(figure, Figure)
    pack, texts = figure.payload["codes"], [word["text"] for word in figure.payload["words"]]
    codes = np.frombuffer(base64.b64decode(pack["bytes"]), dtype=np.uint8).reshape(pack["shape"])
    events = data.run.events.sort_values("t_s", kind="stable")
    checked = 0
    for row in data.run.trace[data.run.trace["outcome"] == "not_selected"].itertuples():
        mine = events[(events["client"] == row.client) & (events["t_s"] <= row.round_start_s)]
        last = mine.groupby("what", observed=True)["value"].last()
        expected = (
            "offline" if last.get("link", 1.0) == Network.none
            else "in use" if last.get("screen", 0.0) > 0
            else "charging" if last.get("charger", 0.0) > 0
            else "asleep"
        )  # fmt: skip
        assert texts[codes[row.round, row.client]] == expected
        checked += 1
    assert checked == 6 * 4
