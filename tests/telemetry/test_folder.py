"""Run folders: what is refused, what is replaced, and that resuming gives the uninterrupted run."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from fake_run import FakeScenario

import fdsim
from fdsim.errors import InputError, NumericalError, RunFolderError, RunFolderWarning, StorageError
from fdsim.rng import stream
from fdsim.telemetry.checkpoint import last_good, save
from fdsim.telemetry.checksum import checksummed_parquet
from fdsim.telemetry.folder import RunFolder
from fdsim.telemetry.manifest import Manifest
from fdsim.telemetry.parts import Part
from fdsim.telemetry.scenario_keys import flat
from fdsim.telemetry.strategy_log import partition
from fdsim.trace import open_trace, plain_round, write_trace

SCENARIO: Any = FakeScenario()


@pytest.mark.parametrize("stop_after", [1, 3, 4, 5, 8, 11, 12, 13, 16, 23, 24])
def test_resuming_gives_the_uninterrupted_run(
    stop_after: int, tmp_path: Path, fake: ModuleType, finished: Path, checks: Any
) -> None:
    with pytest.raises(KeyboardInterrupt):
        fake.fake_run(tmp_path / "run", stop_after=stop_after)
    run = fdsim.open_run(tmp_path / "run")
    assert run.status == "interrupted"
    # What had been learned can be read, beyond the checkpoint too.
    assert len(run.rounds) == stop_after
    fake.fake_run(tmp_path / "run", resume=True)
    checks.same(tmp_path / "run", finished)
    assert len(fdsim.open_run(tmp_path / "run").manifest["sessions"]) == 2


def test_resuming_what_never_began_begins_it(
    tmp_path: Path, fake: ModuleType, finished: Path, checks: Any
) -> None:
    fake.fake_run(tmp_path / "a" / "b", resume=True)
    checks.same(tmp_path / "a" / "b", finished)


def test_a_finished_strategy_is_not_run_again(tmp_path: Path, fake: ModuleType) -> None:
    with pytest.raises(KeyboardInterrupt):
        fake.fake_run(tmp_path / "run", stop_after=14)
    part = tmp_path / "run" / "rounds" / "strategy=fdms" / "part-000000.parquet"
    before = part.stat().st_mtime_ns
    fake.fake_run(tmp_path / "run", resume=True)
    assert part.stat().st_mtime_ns == before


def test_resuming_a_complete_run_changes_nothing(
    tmp_path: Path, fake: ModuleType, finished: Path, checks: Any
) -> None:
    shutil.copytree(finished, tmp_path / "run")
    fake.fake_run(tmp_path / "run", resume=True)
    checks.same(tmp_path / "run", finished)


def test_checkpoints_truncated_at_random_fall_back_to_the_one_before(
    tmp_path: Path, fake: ModuleType, finished: Path, checks: Any
) -> None:
    rng = np.random.default_rng(3)
    for trial in range(6):
        folder = tmp_path / str(trial)
        with pytest.raises(KeyboardInterrupt):
            fake.fake_run(folder, stop_after=11)
        files = sorted((folder / "checkpoints" / "strategy=fdms").iterdir())
        assert [path.name for path in files] == ["round-00000004.checkpoint", "round-00000008.checkpoint"]
        for path in files[1:] if trial < 4 else files:
            path.write_bytes(path.read_bytes()[: rng.integers(0, path.stat().st_size)])
        fake.fake_run(folder, resume=True)
        checks.same(folder, finished)


def test_a_changed_scenario_is_refused_and_the_keys_are_named(tmp_path: Path, fake: ModuleType) -> None:
    with pytest.raises(KeyboardInterrupt):
        fake.fake_run(tmp_path / "run", stop_after=2)
    with pytest.raises(RunFolderError, match=r"rounds \(12 → 15\), telemetry\.checkpoint_every \(4 → 3\)"):
        fake.fake_run(tmp_path / "run", resume=True, rounds=15, every=3)


def test_a_change_outside_the_file_is_refused_too(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", SCENARIO).__exit__(None, None, None)
    with pytest.raises(RunFolderError, match="has changed since the run began: a file or class it names"):
        RunFolder.resume(tmp_path / "run", replace(SCENARIO, content_hash="other"))


def test_nested_tables_become_dotted_keys() -> None:
    tables = {"a": {"b": 1, "c": {}}, "fleet": [{"count": 2}, {"count": 3}], "labels": [1, 2]}
    assert flat(tables) == {"a.b": 1, "a.c": {}, "fleet[0].count": 2, "fleet[1].count": 3, "labels": [1, 2]}


def test_a_complete_run_is_replaced_only_by_force_and_strangers_stay(tmp_path: Path, finished: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "run" / "notes.md").write_text("mine")
    with pytest.raises(RunFolderError, match="a complete run already exists"):
        RunFolder.create(tmp_path / "run", SCENARIO)
    with RunFolder.create(tmp_path / "run", SCENARIO, force=True):
        pass
    assert fdsim.open_run(tmp_path / "run").strategies == ["s"]
    assert not (tmp_path / "run" / "trace.parquet").exists()
    assert (tmp_path / "run" / "notes.md").read_text() == "mine"


def test_an_unfinished_run_is_refused_without_resume(tmp_path: Path, fake: ModuleType) -> None:
    with pytest.raises(KeyboardInterrupt):
        fake.fake_run(tmp_path / "run", stop_after=2)
    with pytest.raises(RunFolderError, match=r"an unfinished run already exists \(interrupted\).*--resume"):
        fake.fake_run(tmp_path / "run")


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_that_is_not_a_run_is_left_alone(tmp_path: Path, force: bool) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunFolderError, match=r"not a run and is not empty \('thesis\.tex'\)"):
        RunFolder.create(tmp_path, SCENARIO, force=force)
    with pytest.raises(RunFolderError, match="not a run and is not empty"):
        RunFolder.resume(tmp_path, SCENARIO)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(RunFolderError, match="is a file, not a folder"):
        RunFolder.create(tmp_path / "run", SCENARIO)


def test_a_run_that_is_being_written_is_refused_even_by_force(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", SCENARIO):
        for attempt in (
            lambda: RunFolder.create(tmp_path / "run", SCENARIO, force=True),
            lambda: RunFolder.resume(tmp_path / "run", SCENARIO),
        ):
            with pytest.raises(RunFolderError, match=r"process \d+ on .* is writing this run"):
                attempt()
        assert fdsim.open_run(tmp_path / "run").status == "running"


def test_the_manifest_says_how_a_run_ended(tmp_path: Path) -> None:
    for error, status in ((KeyboardInterrupt(), "interrupted"), (ValueError("odd"), "failed")):
        folder = tmp_path / status
        with pytest.raises(type(error)), RunFolder.create(folder, SCENARIO):
            raise error
        assert fdsim.open_run(folder).manifest["status"] == status
    assert fdsim.open_run(tmp_path / "failed").manifest["message"] == "ValueError: odd"


def test_one_strategy_that_fails_does_not_stop_the_others(tmp_path: Path, fake: ModuleType) -> None:
    scenario: Any = replace(SCENARIO, labels=("bad", "good"))
    with RunFolder.create(tmp_path / "run", scenario) as run:
        with run.logs["bad"] as log:
            try:
                log.append(*fake.FakeLearner(4, 1, "bad").step())
                raise NumericalError("the loss is NaN")
            except NumericalError as error:
                log.fail(str(error))
        with run.logs["good"] as log:
            learner = fake.FakeLearner(4, 1, "good")
            for _ in range(3):
                log.append(*learner.step())
            log.finish()
        run.complete()
    found = fdsim.open_run(tmp_path / "run")
    assert found.manifest["strategies"]["bad"]["message"] == "the loss is NaN"
    assert found.progress == {"bad": 1, "good": 3}
    with RunFolder.resume(tmp_path / "run", scenario) as run:
        assert run.logs["bad"].finished


def test_rows_that_a_checkpoint_promised_and_that_are_gone_are_learned_again(
    tmp_path: Path, fake: ModuleType, finished: Path, checks: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(KeyboardInterrupt):
        fake.fake_run(tmp_path / "run", stop_after=10)
    for part in ("part-000003.parquet", "part-000002.parquet"):
        (tmp_path / "run" / "rounds" / "strategy=fdms" / part).unlink()
    fake.fake_run(tmp_path / "run", resume=True)
    assert "4 rounds are on disk, the checkpoint says 8" in caplog.text
    checks.same(tmp_path / "run", finished)


@pytest.mark.parametrize("stop_after", [10, 20, None])
def test_a_damaged_part_in_the_middle_is_named_and_made_again(
    stop_after: int | None,
    tmp_path: Path,
    fake: ModuleType,
    finished: Path,
    checks: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """While its strategy goes on, after it was finished, and in a complete run."""
    if stop_after is None:
        fake.fake_run(tmp_path / "run")
    else:
        with pytest.raises(KeyboardInterrupt):
            fake.fake_run(tmp_path / "run", stop_after=stop_after)
    part = sorted((tmp_path / "run" / "clients" / "strategy=fdms").iterdir())[-1 if stop_after is None else 1]
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    fake.fake_run(tmp_path / "run", resume=True)
    assert f"{part}: the file is damaged" in caplog.text
    assert "learned again" in caplog.text
    checks.same(tmp_path / "run", finished)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("scenario.toml", "seed = 1", "seed = 2"),
        ("run.json", '"seed": 1', '"seed": 2'),
        ("run.json", '"rounds": 12', '"rounds": 13'),
    ],
)
def test_an_edited_run_is_warned_of_and_not_resumed(
    file: str, old: str, new: str, tmp_path: Path, fake: ModuleType
) -> None:
    with pytest.raises(KeyboardInterrupt):
        fake.fake_run(tmp_path / "run", stop_after=10)
    path = tmp_path / "run" / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.warns(RunFolderWarning, match=r"scenario\.toml"):
        fdsim.open_run(tmp_path / "run")
    with pytest.raises(RunFolderError, match="the file was edited"):
        fake.fake_run(tmp_path / "run", resume=True)


def _resealed(part: Path) -> None:
    """Change a value of a part, with a checksum that is right."""
    table = Part(part).read()
    column = table.column_names.index("test_loss")
    part.write_bytes(
        checksummed_parquet(table.set_column(column, "test_loss", pa.nulls(len(table), pa.float64())))
    )


def _forged(run: Path) -> None:
    """Put another trace in place of a run's, and its hash into run.json."""
    rng = stream(99, "forged")
    rounds = (plain_round(r, rng.random(6) < 0.7, 60.0) for r in range(12))
    trace = write_trace(run / "trace.parquet", rounds, made_by=open_trace(run / "trace.parquet").made_by)
    facts = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(facts | {"trace_hash": trace.content_hash}))


@pytest.mark.parametrize("stop_after", [10, 20, None])
@pytest.mark.parametrize("killed", [False, True])
def test_a_resealed_part_is_warned_of_and_not_resumed(
    stop_after: int | None, killed: bool, tmp_path: Path, fake: ModuleType
) -> None:
    """In a strategy that stopped or was killed on its way, in one that is finished, and in a complete run."""
    run = _stopped(tmp_path / "run", stop_after, fake, killed=killed)
    assert fdsim.open_run(run).doubts() == []
    _resealed(sorted((run / "rounds" / "strategy=fdms").iterdir())[1])
    with pytest.warns(RunFolderWarning, match="rounds/strategy=fdms is not as the run left it"):
        fdsim.open_run(run)
    with pytest.raises(RunFolderError, match=r"strategy 'fdms'.*a table or the trace was edited.*--force"):
        fake.fake_run(run, resume=True)


@pytest.mark.parametrize("stop_after", [10, 20, None])
@pytest.mark.parametrize("killed", [False, True])
def test_a_forged_trace_with_its_hash_is_warned_of_and_not_resumed(
    stop_after: int | None, killed: bool, tmp_path: Path, fake: ModuleType
) -> None:
    run = _stopped(tmp_path / "run", stop_after, fake, killed=killed)
    _forged(run)
    with pytest.warns(RunFolderWarning) as told:
        fdsim.open_run(run)
    assert any("trace.parquet is not the trace that the run used" in str(each.message) for each in told)
    assert any("rounds/strategy=fdms is not as the run left it" in str(each.message) for each in told)
    with pytest.raises(RunFolderError, match=r"run\.json: the file was edited"):
        fake.fake_run(run, resume=True)
    # With a checksum of run.json to match there are still the tables, which name the trace they were learned on.
    Manifest.read(run).update()
    with pytest.raises(RunFolderError, match="a table or the trace was edited"):
        fake.fake_run(run, resume=True)


@pytest.mark.parametrize("flushes", [1, 3])
def test_an_edit_of_a_run_killed_before_its_first_checkpoint_shows(
    flushes: int, tmp_path: Path, fake: ModuleType
) -> None:
    learner, run = fake.FakeLearner(4, 1, "s"), tmp_path / "run"
    with RunFolder.create(tmp_path / "alive", SCENARIO) as folder, folder.logs["s"] as log:
        for _ in range(flushes):
            log.append(*learner.step())
            log.flush()
        shutil.copytree(tmp_path / "alive", run)
        last = log._manifest["strategies"]["s"]
        log.append(*learner.step())
        log._write_waiting()
        # Killed after the rows were written and before run.json was: this is nobody's edit.
        shutil.copytree(tmp_path / "alive", tmp_path / "later")
        assert log._manifest["strategies"]["s"] == last
    assert fdsim.open_run(run).doubts() == []
    assert fdsim.open_run(tmp_path / "later").doubts() == []
    _resealed(sorted((run / "rounds" / "strategy=s").iterdir())[-1])
    with pytest.warns(RunFolderWarning, match="rounds/strategy=s is not as the run left it"):
        fdsim.open_run(run)
    # There is nothing to go on from: the rounds are learned again.
    with RunFolder.resume(run, SCENARIO) as folder, folder.logs["s"] as log:
        assert log.next_round == 0
        assert fdsim.open_run(run).doubts() == []


def test_a_trace_that_no_run_recorded_is_made_again(tmp_path: Path) -> None:
    """Killed between the trace and its hash in run.json, a run cannot say whether the trace is its own."""
    with RunFolder.create(tmp_path / "run", SCENARIO) as run:
        write_trace(run.trace_path, (plain_round(r, np.ones(2, dtype=bool), 60.0) for r in range(3)))
    with RunFolder.resume(tmp_path / "run", SCENARIO) as run:
        assert not run.trace_path.exists()


def _stopped(run: Path, stop_after: int | None, fake: ModuleType, *, killed: bool) -> Path:
    """Make a run that ended after some rounds, as by Ctrl-C or, its last words missing, as by kill -9."""
    if stop_after is None:
        fake.fake_run(run)
        return run
    with pytest.raises(KeyboardInterrupt):
        fake.fake_run(run, stop_after=stop_after)
    if killed:
        manifest = Manifest.read(run)
        for label, about in manifest["strategies"].items():
            if about["status"] == "stopped":
                manifest.update_strategy(label, status="running", digests=None)
        manifest.update(status="running")
    return run


def test_a_trace_made_again_with_other_bytes_is_not_taken_for_an_edited_one(
    tmp_path: Path, fake: ModuleType, finished: Path, checks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when another version of Parquet writes it: the finished strategy is kept, the other starts over."""
    with pytest.raises(KeyboardInterrupt):
        fake.fake_run(tmp_path / "run", stop_after=18)
    (tmp_path / "run" / "trace.parquet").unlink()

    def other_bytes(path: Path, rounds: Any) -> Any:
        return write_trace(path, rounds, made_by="another version")

    monkeypatch.setattr(fake, "write_trace", other_bytes)
    fake.fake_run(tmp_path / "run", resume=True)
    checks.same(tmp_path / "run", finished)
    assert fdsim.open_run(tmp_path / "run").doubts() == []


def test_a_lost_event_log_is_made_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It and the trace come from one simulation, so the trace goes too; damaged, lost, or in a complete run."""
    for damage in (Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-1])):
        with RunFolder.create(tmp_path / "run", SCENARIO, force=True) as run:
            with run.events_writer() as events:
                events.append(0.5, 3, "link_lost")
            rounds = (plain_round(r, np.ones(2, dtype=bool), 60.0) for r in range(3))
            run.record_trace(write_trace(run.trace_path, rounds).content_hash)
        damage(tmp_path / "run" / "events.parquet")
        caplog.clear()
        with RunFolder.resume(tmp_path / "run", SCENARIO) as run:
            assert not run.trace_path.exists()
        assert "events.parquet is lost or damaged; the fleet is simulated again" in caplog.text


@pytest.mark.parametrize("content", [[1, 2], {"next_round": 8}, {"params": "none"}, "text", None])
def test_a_checkpoint_with_a_valid_seal_and_bad_content_gives_way_to_the_one_before(
    content: Any,
    tmp_path: Path,
    fake: ModuleType,
    finished: Path,
    checks: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(KeyboardInterrupt):
        fake.fake_run(tmp_path / "run", stop_after=10)
    place = tmp_path / "run" / "checkpoints" / "strategy=fdms"
    newest = last_good(place)
    assert newest is not None
    assert newest.next_round == 8
    save(place, content, 8, temporary=tmp_path, tables=newest.tables)
    fake.fake_run(tmp_path / "run", resume=True)
    assert "has bad content" in caplog.text
    assert "is learned again" not in caplog.text
    checks.same(tmp_path / "run", finished)


@pytest.mark.parametrize(
    "change",
    [
        {"strategies": None}, {"strategies": []}, {"strategies": {}}, {"strategies": {"s": None}}, {"seed": None},
        {"seed": "1"}, {"rounds": [3]}, {"rounds": -1}, {"status": 7}, {"name": None}, {"scenario_hash": 1},
        {"versions": []}, {"sessions": {}}, {"started_at": 5}, {"run_version": True},
    ],
)  # fmt: skip
def test_a_manifest_with_nonsense_in_it_is_named(
    change: dict[str, Any], finished: Path, tmp_path: Path
) -> None:
    shutil.copytree(finished, tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(RunFolderError, match=r"run\.json: (the file is damaged|not a run's manifest)"):
        fdsim.open_run(tmp_path / "run")


def test_rows_are_on_disk_in_time_without_any_checkpoint(tmp_path: Path, fake: ModuleType) -> None:
    scenario: Any = replace(SCENARIO, toml="[telemetry]\nflush_every_s = 1e-9\n")
    with RunFolder.create(tmp_path / "run", scenario) as run, run.logs["s"] as log:
        learner = fake.FakeLearner(4, 1, "s")
        for done in range(1, 4):
            log.append(*learner.step())
            assert len(pd.read_parquet(tmp_path / "run" / "rounds")) == done
        log.finish()


def test_a_run_can_be_read_before_its_first_round(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", SCENARIO):
        frame = pd.read_parquet(tmp_path / "run" / "rounds")
        assert len(frame) == 0
        assert {"strategy", "round", "test_accuracy"} <= set(frame.columns)
        assert fdsim.open_run(tmp_path / "run").progress == {"s": 0}


def test_no_client_rows_when_they_are_not_wanted(tmp_path: Path, fake: ModuleType) -> None:
    scenario: Any = replace(SCENARIO, toml="[telemetry]\nclients = false\n")
    with RunFolder.create(tmp_path / "run", scenario) as run:
        with run.logs["s"] as log:
            log.append(*fake.FakeLearner(4, 1, "s").step())
            log.finish()
        run.complete()
    assert not (tmp_path / "run" / "clients").exists()
    assert fdsim.open_run(tmp_path / "run").clients.empty


def test_automatic_checkpoints_leave_99_percent_of_the_time_to_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake: ModuleType
) -> None:
    """One checkpoint takes 0.5 s on this clock, so the next is due 50 s later, not after the usual 2 s."""
    from fdsim.telemetry import strategy_log

    clock = [100.0]
    monkeypatch.setattr(strategy_log.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(
        strategy_log.checkpoint, "save", lambda *_, **__: clock.__setitem__(0, clock[0] + 0.5)
    )
    with RunFolder.create(tmp_path / "run", SCENARIO) as run, run.logs["s"] as log:
        due = []
        for _ in range(300):
            clock[0] += 0.5
            if log.checkpoint_due(1):
                log.checkpoint({}, 1)
                due.append(clock[0])
        log.finish()
    assert due[0] == 102.5
    assert set(np.diff(due)) == {50.5}


@pytest.mark.parametrize("label", ["<script>/é", "a b=c%20", "..", "x" * 60, "1"])
def test_any_label_names_a_folder(label: str, tmp_path: Path) -> None:
    name = partition(label)
    assert "/" not in name
    assert " " not in name
    scenario: Any = replace(SCENARIO, labels=(label,))
    with RunFolder.create(tmp_path / "run", scenario):
        assert fdsim.open_run(tmp_path / "run").rounds["strategy"].cat.categories.tolist() == [label]


@pytest.mark.parametrize("label", ["", "x" * 300])
def test_a_label_that_no_folder_can_have_is_refused(label: str) -> None:
    with pytest.raises(InputError, match="cannot name a strategy"):
        partition(label)


def test_the_manifest_records_what_the_run_was_made_with(finished: Path) -> None:
    facts = json.loads((finished / "run.json").read_text())
    assert facts["status"] == "complete"
    assert facts["seed"] == 1
    assert facts["versions"]["fdsim"] == fdsim.__version__
    assert {"python", "torch", "numpy", "pyarrow", "simpy"} <= set(facts["versions"])
    assert facts["strategies"]["fdms"]["rows"] == {"rounds": 12, "clients": 72, "similarity": 60}
    assert facts["wall_s"] > 0
    assert not (finished / "checkpoints").exists()
    assert not (finished / ".tmp").exists()


@pytest.mark.parametrize("replaced", [False, True])
def test_a_folder_removed_under_a_run_ends_it_and_is_not_made_again(
    replaced: bool, fake: ModuleType, tmp_path: Path
) -> None:
    learner = fake.FakeLearner(4, 1, "s")
    with (  # noqa: PT012
        pytest.raises(StorageError, match="removed or replaced while the run was going on"),
        RunFolder.create(tmp_path / "run", SCENARIO) as run,
        run.logs["s"] as log,
    ):
        log.append(*learner.step())
        log.flush()
        shutil.rmtree(tmp_path / "run")
        if replaced:
            (tmp_path / "run").mkdir()
            (tmp_path / "run" / ".lock").touch()
        log.append(*learner.step())
        log.checkpoint(learner.as_state(), 2)
    assert (tmp_path / "run").exists() == replaced
    assert not replaced or os.listdir(tmp_path / "run") == [".lock"]
