"""Importers: what they read, what they refuse, and that nothing half-written remains."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from fdsim.cli.trace import app
from fdsim.errors import InputError, TraceError
from fdsim.files import SEAL_KEY
from fdsim.trace.availability import is_availability, observe, read_availability, write_availability
from fdsim.trace.importers.fedscale import read_fedscale
from fdsim.trace.importers.flash import read_flash
from fdsim.trace.importers.interval_csv import read_interval_csv
from fdsim.trace.sessions import Observation, session_stats

FLASH = (
    "2020-01-28 10:00:00 \tscreen_off\n2020-01-28 10:00:00 \t55.0%\n2020-01-28 10:01:00 \twifi\n"
    "2020-01-28 10:02:00 \tbattery_charged_on\n2020-01-28 10:05:00 \tscreen_on\n2020-01-28 10:04:00 \tUnknown\n"
    "2020-01-28 10:06:00 \tscreen_lock\n2020-01-28 10:10:00 \tbattery_charged_off\n2020-01-28 10:12:00 \t4G\n"
    "2020-01-29 10:00:00 \t50.0%\n"
)


def write(path: Path, value: object) -> Path:
    path.write_bytes(pickle.dumps(value) if path.suffix == ".pkl" else json.dumps(value).encode())
    return path


def test_flash_states_last_until_their_next_event_and_lines_are_sorted(tmp_path: Path) -> None:
    """Charging and on Wi-Fi from 10:02 to 10:04, idle until 10:05."""
    [device] = read_flash(write(tmp_path / "f.json", {"7": {"guid": "7", "model": "x", "messages": FLASH}}))
    ten = 36_000.0
    assert (device.begin_s, device.end_s) == (ten, ten + 86_400)
    assert device.states["idle"].tolist() == [[ten, ten + 300]]
    assert device.states["charging"].tolist() == [[ten + 120, ten + 600]]
    assert device.states["wifi"].tolist() == [[ten + 60, ten + 240]]
    assert device.states["cellular"].tolist() == [[ten + 720, ten + 86_400]]
    assert device.eligible.tolist() == [[ten + 120, ten + 240]]


def test_fedscale_pickle_and_events(tmp_path: Path) -> None:
    entry = {"duration": 5, "active": [10, 700], "inactive": [500, 1200], "finish_time": 1000, "model": "x"}
    [device] = read_fedscale(write(tmp_path / "f.pkl", {3: entry}))
    assert device.eligible.tolist() == [[10, 500], [700, 1000]]
    events = [[0, "AVL_TRAIN"], [300, "UN_AVL"], [1000, "AVL_TRAIN"], [2000, "UN_AVL"], [86_000, "AVL_TRAIN"]]
    [device] = read_fedscale(write(tmp_path / "f.json", {"290": {"avl_events_2_state": events}}))
    assert device.eligible.tolist() == [[1000, 2000], [86_000, 86_400]]
    assert device.begin_s == 300


def test_flash_keeps_battery_readings_but_not_a_single_zero_among_them(tmp_path: Path) -> None:
    log = "".join(
        f"2020-01-28 1{i}:00:00 \\t{level}%\n" for i, level in enumerate((55.0, 0.0, 54.0, 3.0, 0.0))
    )
    [device] = read_flash(write(tmp_path / "f.json", {"7": {"messages": log.replace("\\t", "\t")}}))
    assert device.levels.tolist() == [[36_000, 0.55], [43_200, 0.54], [46_800, 0.03], [50_400, 0.0]]
    write_availability(tmp_path / "f.parquet", [device], "test")
    [back] = read_availability(tmp_path / "f.parquet")
    assert back.levels.tolist() == device.levels.tolist()


def test_a_silent_screen_counts_as_off_when_asked(tmp_path: Path) -> None:
    """On at 10:00, in use until 10:30, then nothing is logged until 16:00: on for six hours, or for half an hour."""
    log = (
        "2020-01-28 09:00:00 \tscreen_off\n2020-01-28 10:00:00 \tscreen_on\n2020-01-28 10:30:00 \t50.0%\n"
        "2020-01-28 16:00:00 \tscreen_off\n2020-01-28 17:00:00 \t40.0%\n"
    )
    path = write(tmp_path / "f.json", {"7": {"messages": log}})
    hour = 3600.0
    [device] = read_flash(path)
    assert device.states["idle"].tolist() == [[9 * hour, 10 * hour], [16 * hour, 17 * hour]]
    [device] = read_flash(path, silent_screen_s=4 * hour)
    assert device.states["idle"].tolist() == [[9 * hour, 10 * hour], [10.5 * hour, 17 * hour]]


@pytest.mark.parametrize("order", [("on", "off"), ("off", "on")])
def test_flash_events_of_the_same_second_in_any_order(order: tuple[str, str], tmp_path: Path) -> None:
    """Charging until 11:00, where a lost contact is logged in either order; the next event says that it went on."""
    log = "2020-01-28 10:00:00 \tbattery_charged_on\n" + "".join(
        f"2020-01-28 11:00:00 \tbattery_charged_{word}\n" for word in order
    )
    log += "2020-01-28 12:00:00 \tbattery_charged_off\n2020-01-28 13:00:00 \t40.0%\n"
    [device] = read_flash(write(tmp_path / "f.json", {"7": {"messages": log}}))
    assert device.states["charging"].tolist() == [[36_000, 43_200]]


def test_fedscale_joins_sessions_that_touch(tmp_path: Path) -> None:
    entry = {"active": [10, 500, 701, 900], "inactive": [500, 700, 800, 950], "finish_time": 1000}
    [device] = read_fedscale(write(tmp_path / "f.pkl", {3: entry}))
    assert device.eligible.tolist() == [[10, 800], [900, 950]]


def test_a_span_under_a_minute_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="shorter than 60 s"):
        read_fedscale(write(tmp_path / "f.pkl", {3: {"active": [1], "inactive": [2], "finish_time": 59}}))


def test_csv_with_battery_levels(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("device,state,start_s,end_s,soc\na,wifi,0,100,\na,level,0,50,0.5\na,level,50,100,0.4\n")
    [a] = read_interval_csv(path)
    assert a.levels.tolist() == [[0, 0.5], [50, 0.4]]
    path.write_text("device,state,start_s,end_s,soc\na,level,0,50,half\n")
    with pytest.raises(TraceError, match="state of charge"):
        read_interval_csv(path)


def test_csv(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text(
        "device,state,start_s,end_s\na,wifi,0,100\na,wifi,200,300\nb,available,5,9\nb,observed,0,500\n"
    )
    a, b = read_interval_csv(path)
    assert a.states["wifi"].tolist() == [[0, 100], [200, 300]]
    assert (a.end_s, b.end_s) == (86_400, 500)


@pytest.mark.parametrize("kind", ["flash", "fedscale", "csv"])
def test_the_command_writes_a_file_that_reads_back(kind: str, tmp_path: Path) -> None:
    sources = {
        "flash": write(tmp_path / "a.json", {"7": {"messages": FLASH}, "8": {"messages": FLASH}}),
        "fedscale": write(tmp_path / "b.pkl", {1: {"active": [1], "inactive": [2], "finish_time": 900}}),
        "csv": tmp_path / "c.csv",
    }
    sources["csv"].write_text("device,state,start_s,end_s\na,idle,0,100\n")
    out = tmp_path / "deep" / "out.parquet"
    result = CliRunner().invoke(
        app, ["import", kind, str(sources[kind]), "--out", str(out)], catch_exceptions=False
    )
    assert result.exit_code == 0
    assert is_availability(out)
    assert len(read_availability(out)) == (2 if kind == "flash" else 1)
    assert os.listdir(out.parent) == ["out.parquet"]
    shown = CliRunner().invoke(
        app, ["stats", str(out), "--out", str(tmp_path / "s.parquet")], catch_exceptions=False
    )
    assert "mean availability" in shown.output


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch pwned",)


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        ("evil.pkl", pickle.dumps({1: Evil()}), "wants to import"),
        ("numpy.pkl", pickle.dumps({1: np.zeros(3)}), "wants to import"),
        (
            "cut.pkl",
            pickle.dumps({1: {"active": [1, 2, 3], "inactive": [2]}})[:-20],
            "truncated or damaged|not a pickle",
        ),
        ("empty.pkl", b"", "truncated or damaged"),
        ("noise.pkl", b"\x80\x05\x95\xff\xff\xff\xff", "truncated or damaged|not a pickle"),
        ("list.pkl", pickle.dumps([1]), "not a table of devices"),
        (
            "uneven.pkl",
            pickle.dumps({1: {"active": [1, 5], "inactive": [2], "finish_time": 9}}),
            "2 starts do not match 1",
        ),
        (
            "words.pkl",
            pickle.dumps({1: {"active": ["x"], "inactive": [2], "finish_time": 9}}),
            "not a list of numbers",
        ),
        (
            "over.pkl",
            pickle.dumps({1: {"active": [1, 3], "inactive": [5, 6], "finish_time": 9}}),
            "device 1.*overlap",
        ),
        (
            "back.pkl",
            pickle.dumps({1: {"active": [5, 1], "inactive": [6, 2], "finish_time": 9}}),
            "time runs back",
        ),
        (
            "ends.pkl",
            pickle.dumps({1: {"active": [5], "inactive": [3], "finish_time": 9}}),
            "ends before it starts",
        ),
        (
            "nan.pkl",
            pickle.dumps({1: {"active": [float("nan")], "inactive": [3], "finish_time": 9}}),
            "device 1",
        ),
        ("bad.json", b"{", "not readable as JSON"),
        ("state.json", b'{"1": {"avl_events_2_state": [[0, "HAPPY"]]}}', "unknown state 'HAPPY'"),
        (
            "clock.json",
            b'{"1": {"avl_events_2_state": [[900, "UN_AVL"], [400, "AVL_TRAIN"]]}}',
            "time runs back",
        ),
        ("none.json", b'{"1": {}}', "avl_events_2_state"),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value and " " not in value else "",
)
def test_damaged_and_malicious_fedscale_files(
    name: str, content: bytes, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TraceError, match=word):
        read_fedscale(tmp_path / name)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    ("messages", "word"),
    [
        ("hello\tscreen_on", "line 1.*is not a time"),
        ("2020-01-28 10:00:00\tdance", "unknown event 'dance'"),
        ("", "no messages"),
    ],
)
def test_damaged_flash_files(messages: str, word: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=word):
        read_flash(write(tmp_path / "f.json", {"1": {"messages": messages}}))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("a,b\n1,2\n", "the header is"),
        ("device,state,start_s,end_s\n", "no intervals"),
        ("device,state,start_s,end_s\na,wifi,x,2\n", "line 2"),
        ("device,state,start_s,end_s\na,sleep,1,2\n", "unknown state 'sleep'.*observed, level"),
        ("device,state,start_s,end_s\na,wifi,1,9\na,wifi,5,12\n", "device a, wifi, lines 2 and 3.*overlap"),
        ("device,state,start_s,end_s\na,level,1,2\n", "line 2.*column"),
        ("device,state,start_s,end_s,soc\na,level,1,2,1.5\n", "line 2.*'1.5' is not a state of charge"),
        ("device,state,start_s,end_s\na,wifi,1700000000,1700000900\n", "device a: .*not from 1970"),
        ("device,state,start_s,end_s\na,wifi,9,3\n", "ends before it starts"),
        ("device,state,start_s,end_s\na,wifi,-9,3\n", "line 2.*negative time.*from midnight"),
        ("device,state,start_s,end_s\na,wifi,0,900\na,observed,0,500\n", "line 2.*outside the span"),
        ("device,state,start_s,end_s\na,wifi,0,9\na,observed,0,5\na,observed,0,6\n", "more than one"),
    ],
)
def test_damaged_csv_files_name_the_place_and_leave_nothing(text: str, word: str, tmp_path: Path) -> None:
    path, out = tmp_path / "f.csv", tmp_path / "out.parquet"
    path.write_text(text)
    with pytest.raises(TraceError, match=word):
        CliRunner().invoke(app, ["import", "csv", str(path), "--out", str(out)], catch_exceptions=False)
    assert os.listdir(tmp_path) == ["f.csv"]


def test_rows_of_a_csv_may_come_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text(
        "device,state,start_s,end_s,soc\na,wifi,10,12,\na,level,90,90,0.4\na,wifi,5,6,\na,level,1,1,0.5\n"
    )
    (device,) = read_interval_csv(path)
    assert device.states["wifi"].tolist() == [[5, 6], [10, 12]]
    assert device.levels.tolist() == [[1, 0.5], [90, 0.4]]


def test_an_existing_file_is_replaced_only_by_force(tmp_path: Path) -> None:
    path, out = tmp_path / "f.csv", tmp_path / "out.parquet"
    path.write_text("device,state,start_s,end_s\na,wifi,0,900\n")
    out.write_text("mine")
    words = ["import", "csv", str(path), "--out", str(out)]
    with pytest.raises(InputError, match=r"already exists.*--force"):
        CliRunner().invoke(app, words, catch_exceptions=False)
    assert out.read_text() == "mine"
    assert CliRunner().invoke(app, [*words, "--force"], catch_exceptions=False).exit_code == 0
    assert read_availability(out)[0].name == "a"


def test_duplicate_devices_and_foreign_files(tmp_path: Path) -> None:
    twice = [observe("a", (0, 100), {"wifi": np.array([[1, 2]])}, "here")] * 2
    with pytest.raises(TraceError, match="'a' occurs twice"):
        write_availability(tmp_path / "x.parquet", twice, "test")
    (tmp_path / "x.parquet").write_bytes(b"no")
    with pytest.raises(TraceError, match="not an availability file"):
        read_availability(tmp_path / "x.parquet")
    with pytest.raises(TraceError, match="no such file"):
        read_availability(tmp_path / "y.parquet")
    with pytest.raises(TraceError, match="did you mean 'flash'"):
        CliRunner().invoke(app, ["import", "flish", "f", "--out", "g"], catch_exceptions=False)


def test_the_real_flash_logs_look_as_published(shared: Path) -> None:
    """Fifty of the phones behind the published rows: the same order of magnitude, device by device luck aside."""
    devices = read_flash(shared / "traces" / "flash_state_traces_50dev.json")
    strict = session_stats([Observation(d.begin_s, d.end_s, d.eligible) for d in devices])
    assert len(devices) == 50
    assert 0.05 < strict.mean_frac < 0.11
    assert 0.2 < strict.never_frac < 0.45
    for horizon_s, real in ((60, 0.033), (120, 0.061), (180, 0.086), (300, 0.130), (600, 0.22), (1200, 0.35)):
        assert strict.leave_within[horizon_s] == pytest.approx(real, rel=0.3)
    charging = session_stats([Observation(d.begin_s, d.end_s, d.during("charging")) for d in devices])
    wifi = session_stats([Observation(d.begin_s, d.end_s, d.during("wifi")) for d in devices])
    assert charging.mean_frac == pytest.approx(0.235, abs=0.05)
    assert wifi.mean_frac == pytest.approx(0.408, abs=0.08)
    assert charging.session_mean_s == pytest.approx(4028, rel=0.25)


def test_the_real_fedscale_logs_look_as_published(shared: Path) -> None:
    devices = read_fedscale(shared / "traces" / "fedscale_mobiperf_availability_150dev.json")
    found = session_stats([Observation(d.begin_s, d.end_s, d.eligible) for d in devices])
    assert len(devices) == 150
    assert found.mean_frac == pytest.approx(0.16, abs=0.03)
    # Published medians, 492 s, count sessions that touch one by one.
    assert found.session_median_s == pytest.approx(1207, rel=0.01)
    assert found.session_mean_s == pytest.approx(3559, rel=0.3)


def test_a_file_of_before_battery_readings_is_read_without_them(tmp_path: Path) -> None:
    path, older = tmp_path / "a.parquet", tmp_path / "older.parquet"
    seen = observe("a", (0.0, 600.0), {"wifi": np.array([[0.0, 300.0]])}, "a", levels=np.array([[0.0, 0.5]]))
    write_availability(path, [seen], "test")
    table = pq.read_table(path)
    about = {k: v for k, v in table.schema.metadata.items() if k != SEAL_KEY}
    states = table.filter(pc.not_equal(table["state"].cast("string"), "level")).drop_columns("soc")
    pq.write_table(states.replace_schema_metadata(about), older)
    [again] = read_availability(older)
    assert again.during("wifi").tolist() == [[0.0, 300.0]]
    assert not len(again.levels)
