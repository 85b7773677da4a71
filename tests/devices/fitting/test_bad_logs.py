"""Logs that nothing can be fitted to: one clear error each, whichever importer reads them, and nothing is lost."""

from __future__ import annotations

import json
import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fdsim.cli.fleet import app
from fdsim.cli.trace import app as trace_app
from fdsim.devices.config.fleet import DeviceGroup
from fdsim.devices.fitting.fleet_log import fleet_log
from fdsim.errors import InputError, TraceError
from fdsim.trace.availability import observe, write_availability
from fdsim.trace.importers.interval_csv import read_interval_csv

DAY = 86_400
#: What is wrong with a log; each importer's file below has it in its own words.
CASES = ("few", "never", "always", "not a number", "negative")


def csv(case: str, *, available: bool = False) -> str:
    """Twelve phones, each charging (or available) for an hour of its only day, but for what is wrong."""
    start, end = {
        "never": (0, 0),
        "always": (0, DAY),
        "not a number": ("nan", 3600),
        "negative": (-60, 3600),
    }.get(case, (0, 3600))
    rows = ["device,state,start_s,end_s"]
    for phone in range(4 if case == "few" else 12):
        rows += [
            f"{phone},observed,0,{DAY}",
            f"{phone},{'available' if available else 'charging'},{start},{end}",
        ]
        if not available:
            rows += [f"{phone},idle,0,9000", f"{phone},wifi,900,18000"]
    return "\n".join(rows)


def fedscale_json(case: str) -> str:
    """The same, as FedScale's events; their first 300 s are not looked at."""
    events = {
        "never": [[0, "AVL_TRAIN"], [300, "UN_AVL"]],
        "always": [[0, "AVL_TRAIN"]],
        "not a number": [[0, "AVL_TRAIN"], [float("nan"), "UN_AVL"], [9000, "AVL_TRAIN"]],
        "negative": [[-5, "AVL_TRAIN"], [9000, "UN_AVL"]],
    }.get(case, [[0, "AVL_TRAIN"], [9000, "UN_AVL"]])
    return json.dumps({str(i): {"avl_events_2_state": events} for i in range(4 if case == "few" else 12)})


def fedscale_pickle(case: str) -> bytes:
    """The same, as FedScale's intervals."""
    active, inactive = {
        "never": ([], []),
        "always": ([0], [DAY]),
        "not a number": ([float("nan")], [900]),
        "negative": ([-5], [900]),
    }.get(case, ([100], [900]))
    entry = {"active": active, "inactive": inactive, "finish_time": DAY}
    return pickle.dumps(dict.fromkeys(range(4 if case == "few" else 12), entry))


def flash(case: str) -> str:
    """The same, as FLASH's messages, whose times are dates: what can be no number, or negative, is a battery level."""
    level = {"not a number": "nan%", "negative": "-5.0%"}.get(case, "50.0%")
    events = [("00:00:00", "screen_off"), ("00:00:00", "wifi"), ("01:00:00", level), ("03:00:00", "60.0%")]
    if case != "never":
        events.append(("00:00:00", "battery_charged_on"))
    if case != "always":
        events.append(("02:00:00", "battery_charged_off"))
    events += [("02:30:00", "screen_on"), ("02:40:00", "Unknown"), ("23:00:00", "55.0%")]
    log = "\n".join(f"2020-01-28 {time} \t{event}" for time, event in events)
    return json.dumps({str(i): {"messages": log} for i in range(4 if case == "few" else 12)})


#: Importer → its file's ending, and the file with something wrong.
IMPORTERS: dict[str, tuple[str, Callable[[str], str | bytes]]] = {
    "csv": (".csv", csv),
    "csv, available": (".csv", lambda case: csv(case, available=True)),
    "fedscale json": (".json", fedscale_json),
    "fedscale pickle": (".pkl", fedscale_pickle),
    "flash": (".json", flash),
}
SAID = {
    "few": "4 phones are too few",
    "never": "no phone was ever (charging|available): the series is constant",
    "always": "every phone was always (charging|available): the series is constant",
    "not a number": "(nan|'nan%'|'active').* (is not an interval|is not a time|is not a battery level|not finite)",
    "negative": "negative time|'-5.0%' is not a battery level",
}


def refused(words: list[str], *, by: Callable[..., object] = app) -> InputError:
    """Return the error that a command ends with."""
    with pytest.raises(InputError) as caught:
        CliRunner().invoke(by, words, catch_exceptions=False)  # type: ignore[arg-type]
    return caught.value


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("importer", IMPORTERS)
def test_every_importer_says_what_is_wrong_with_a_log(importer: str, case: str, tmp_path: Path) -> None:
    """By fit and by check: the file is named, the problem, and a remedy; no file is written."""
    ending, content = IMPORTERS[importer]
    log, text = tmp_path / f"log{ending}", content(case)
    log.write_bytes(text if isinstance(text, bytes) else text.encode())
    for words in (["fit", str(log), "--out", str(tmp_path / "x.toml")], ["check", "flash2020", str(log)]):
        error = refused(words)
        assert str(log) in error.place
        assert re.search(SAID[case], error.problem), error.problem
        assert error.remedy
    assert os.listdir(tmp_path) == [log.name]


@pytest.mark.parametrize(
    ("importer", "case"), [(i, c) for i in IMPORTERS for c in ("not a number", "negative")]
)
def test_no_importer_takes_such_times(importer: str, case: str, tmp_path: Path) -> None:
    ending, content = IMPORTERS[importer]
    log, text = tmp_path / f"log{ending}", content(case)
    log.write_bytes(text if isinstance(text, bytes) else text.encode())
    kind = importer.split(" ")[0].strip(",")
    error = refused(["import", kind, str(log), "--out", str(tmp_path / "x.parquet")], by=trace_app)
    assert "device" in error.place or "line" in error.place
    assert error.remedy


@pytest.mark.parametrize(
    ("state", "words"), [("wifi", "on Wi-Fi"), ("idle", "idle"), ("charging", "charging")]
)
def test_what_no_row_says_did_not_happen(state: str, words: str, tmp_path: Path) -> None:
    """A CSV without rows of a state is valid, and replays so; fit and check say that it never was."""
    log = tmp_path / "log.csv"
    log.write_text("\n".join(line for line in csv("").split("\n") if f",{state}," not in line))
    assert len(read_interval_csv(log)[0].states[state]) == 0
    imported = tmp_path / "log.parquet"
    CliRunner().invoke(trace_app, ["import", "csv", str(log), "--out", str(imported)], catch_exceptions=False)
    for given in (log, imported):
        error = refused(["check", "flash2020", str(given)])
        assert f"no phone was ever {words}: the series is constant" in error.problem
        assert "'available' rows" in error.remedy
        assert refused(["fit", str(given), "--out", str(tmp_path / "x.toml")]).problem == error.problem


def test_a_phone_without_rows_among_available_ones_was_never_available(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text(csv("", available=True) + f"\nlast,observed,0,{DAY}\n")
    last = read_interval_csv(log)[-1]
    assert list(last.states) == ["available"]
    assert not len(last.eligible)
    log.write_text(csv("", available=True) + f"\nlast,observed,0,{DAY}\nlast,wifi,0,60")
    assert "fit them and the others apart" in refused(["check", "flash2020", str(log)]).remedy


def test_a_battery_that_never_moves_is_refused(tmp_path: Path) -> None:
    logs = fleet_log(DeviceGroup.model_validate({"profile": "flash2020", "count": 12}), 5, days=1)
    still = [
        observe(
            log.name, (log.begin_s, log.end_s), log.states, "", levels=np.array([[0.0, 0.5], [900.0, 0.5]])
        )
        for log in logs
    ]
    path = tmp_path / "log.parquet"
    write_availability(path, still, "test")
    error = refused(["fit", str(path), "--out", str(tmp_path / "x.toml")])
    assert error.place == str(path)
    assert "no battery level ever changes" in error.problem
    assert "--like" in error.remedy


def test_too_few_whole_spells_name_the_file_and_the_spells(tmp_path: Path) -> None:
    """Every phone is on Wi-Fi from the start of its log, once: no such spell is seen whole."""
    log = tmp_path / "log.csv"
    log.write_text(csv("").replace(",wifi,900,", ",wifi,0,").replace(",charging,0,3600", ",charging,60,3600"))
    error = refused(["fit", str(log), "--out", str(tmp_path / "x.toml")])
    assert error.place.startswith(f"{log}, spells")
    assert "fewer than two lie wholly within" in error.problem
    assert "longer logs" in error.remedy


def test_time_that_runs_back_in_the_first_minutes_is_seen(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    log.write_text(json.dumps({"1": {"avl_events_2_state": [[200, "AVL_TRAIN"], [100, "UN_AVL"]]}}))
    with pytest.raises(TraceError, match="time runs back at event 1"):
        CliRunner().invoke(
            trace_app,
            ["import", "fedscale", str(log), "--out", str(tmp_path / "x.parquet")],
            catch_exceptions=False,
        )


# -- what a command writes


def test_the_log_that_is_read_is_never_replaced(tmp_path: Path) -> None:
    """Not by a table named after the profile, not by a page, not by force, not under another name of the file."""
    log, link = tmp_path / "phones.parquet", tmp_path / "same.parquet"
    logs = fleet_log(DeviceGroup.model_validate({"profile": "flash2020", "count": 24}), 5, days=2)
    write_availability(log, logs, "test")
    link.symlink_to(log)
    before = log.read_bytes()
    out = tmp_path / "phones.toml"
    small = ["--turns", "1", "--devices", "10"]
    CliRunner().invoke(app, ["fit", str(log), "--out", str(out), *small], catch_exceptions=False)
    assert log.read_bytes() == before
    assert (tmp_path / "phones.fit.parquet").is_file()
    for place in (log, link):
        words = ["check", "flash2020", str(log), "--out", str(place), "--force"]
        assert "is read by this command" in refused(words).problem
        words = ["stats", str(log), "--out", str(place), "--force"]
        assert "is read by this command" in refused(words, by=trace_app).problem
    words = ["import", "csv", str(log), "--out", str(log), "--force"]
    assert "is read by this command" in refused(words, by=trace_app).problem
    assert log.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ["fit", "LOG", "--out", "x.parquet"],
            "--out: 'DIR/x.parquet' does not end in .toml. call it x.toml, say",
        ),
        (["fit", "LOG", "--out", "old.toml"], "--out: 'DIR/old.toml' already exists"),
        (["fit", "LOG", "--out", "made.toml"], "--out: 'DIR/made.fit.parquet' already exists"),
        (["fit", "LOG", "--out", "x.toml", "--page", "old.html"], "--page: 'DIR/old.html' already exists"),
        (["fit", "LOG", "--out", "x.toml", "--page", "x.toml"], "--page: 'DIR/x.toml' does not end in .html"),
        (
            ["fit", "LOG", "--like", "old.toml", "--out", "old.toml", "--force"],
            "'DIR/old.toml' is read by this",
        ),
        (["check", "flash2020", "LOG", "--out", "x.csv"], "--out: 'DIR/x.csv' does not end in .parquet"),
        (
            ["check", "flash2020", "LOG", "--out", "made.fit.parquet"],
            "already exists. choose another name, or",
        ),
        (["check", "flash2020", "LOG", "--page", "old.html"], "--page: 'DIR/old.html' already exists"),
        (["check", "flash2020", "LOG", "--page", "folder.html"], "--page: 'DIR/folder.html' is a folder"),
    ],
)
def test_outputs_are_checked_before_anything_is_read(words: list[str], problem: str, tmp_path: Path) -> None:
    (tmp_path / "folder.html").mkdir()
    for name in ("old.toml", "old.html", "made.fit.parquet", "LOG"):
        (tmp_path / name).write_text("mine")
    given = [str(tmp_path / word) if "." in word or word == "LOG" else word for word in words]
    assert problem.replace("DIR", str(tmp_path)) in str(refused(given))
    assert (tmp_path / "old.toml").read_text() == "mine"
