"""Studies on a real Ray cluster of several nodes, with processes and nodes taken away in the middle."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fdsim.errors import InputError
from fdsim.studies.executors.ray import name_among_studies
from fdsim.studies.executors.ray_tasks import Delivery
from fdsim.studies.folder import read_study
from fdsim.studies.launch import StudyChoices, run_study
from fdsim.studies.plan import Trial
from fdsim.studies.progress import SilentStudy

STUDY = '[study]\nbase = "base.toml"\nseeds = 2\n[study.grid]\n"training.learning_rate" = [0.05, 0.1]\n'
ROUNDS = 40

# Ray and its dashboard client warn about their own future; that says nothing about fdsim.
pytestmark = [
    pytest.mark.filterwarnings(
        "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"
    )
]


def _children() -> set[int]:
    """The processes this one has started."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(path.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.add(int(path.parent.name))
        except OSError:
            continue
    return found


def add_node(cluster: Any, **wanted: Any) -> Any:
    """Add a node, patiently: Ray gives a node 30 s to start, which is too little where all cores are busy."""
    for attempt in range(5):
        before = _children()
        try:
            return cluster.add_node(**wanted)
        except Exception as error:
            for pid in _children() - before:  # Ray leaves what had started running
                os.kill(pid, signal.SIGKILL)
            if "timed out during startup" not in str(error) or attempt == 4:
                raise
    return None


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head that runs nothing and one node of two cores; tests add and remove others."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    utils = pytest.importorskip("ray.cluster_utils")
    made = utils.Cluster()
    for wanted in ({"num_cpus": 0, "include_dashboard": False}, {"num_cpus": 2}):
        add_node(made, **wanted)
    yield made
    import ray

    ray.shutdown()
    made.shutdown()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, study_in: Any, tables_of: Any) -> Any:
    """What the local executor makes of the study."""
    folder = tmp_path_factory.mktemp("local")
    run_study(study_in(folder, STUDY, rounds=ROUNDS), folder / "out", StudyChoices(workers=2))
    return tables_of(folder / "out")


class Disturber(SilentStudy):
    """Does something to the cluster once a trial is well under way."""

    def __init__(self, folder: Path, disturb: Any) -> None:
        self.failures: list[str] = []
        self._thread = threading.Thread(target=self._watch, args=(folder, disturb), daemon=True)
        self._thread.start()

    def _watch(self, folder: Path, disturb: Any) -> None:
        give_up_s = time.monotonic() + 600
        while time.monotonic() < give_up_s:
            for path in sorted(folder.glob("*/run.json")):
                manifest = json.loads(path.read_text())
                if manifest["status"] == "running" and any((path.parent / "checkpoints").rglob("*")):
                    disturb(manifest)
                    return
            time.sleep(0.01)

    def trial_fails(self, trial: Trial, message: str, *, again: bool) -> None:
        self.failures.append(message)
        assert again


@pytest.mark.slow
@pytest.mark.parametrize("results", ["shared", "ship", "url"])
def test_a_cluster_finds_what_this_machine_finds(
    cluster: Any,
    undisturbed: Any,
    write_study: Any,
    tmp_path: Path,
    tables_of: Any,
    same_tables: Any,
    results: str,
) -> None:
    """Written to a shared folder, sent back to the driver, or put to a URL: the same tables."""
    out, store = tmp_path / "out", tmp_path / "store"
    where = f"file://{store}" if results == "url" else results
    choices = StudyChoices(executor="ray", address=cluster.address, results=where)
    outcome = run_study(write_study(STUDY, rounds=ROUNDS), out, choices)
    assert len(outcome.complete) == 4
    trials = read_study(out)["trials"]
    if results == "url":
        # What stayed at the URL is joined with what came home, as a user who fetches the store would do.
        for trial in trials:
            assert not (out / trial["folder"] / "clients").exists()
            (store / trial["folder"] / "clients").rename(out / trial["folder"] / "clients")
    same_tables(tables_of(out), undisturbed)
    assert len(list((out / "traces").glob("*.parquet"))) == 2
    assert "ray" in sys.modules


@pytest.mark.slow
def test_a_worker_killed_in_the_middle_loses_nothing(
    cluster: Any, undisturbed: Any, write_study: Any, tmp_path: Path, tables_of: Any, same_tables: Any
) -> None:
    out = tmp_path / "out"
    watcher = Disturber(
        out / "trials", lambda manifest: os.kill(manifest["sessions"][-1]["pid"], signal.SIGKILL)
    )
    choices = StudyChoices(executor="ray", address=cluster.address, results="shared")
    outcome = run_study(write_study(STUDY, rounds=ROUNDS), out, choices, progress=watcher)
    assert len(outcome.complete) == 4
    assert len(watcher.failures) == 1
    assert "lost by the cluster" in watcher.failures[0]
    sessions = [len(json.loads(path.read_text())["sessions"]) for path in out.glob("trials/*/run.json")]
    assert sorted(sessions) == [1, 1, 1, 2]
    same_tables(tables_of(out), undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("results", ["shared", "ship"])
def test_a_node_removed_in_the_middle_loses_nothing(
    cluster: Any,
    undisturbed: Any,
    write_study: Any,
    tmp_path: Path,
    tables_of: Any,
    same_tables: Any,
    results: str,
) -> None:
    """The study starts on two nodes; one of them goes with whatever it was at, and the other takes over."""
    out = tmp_path / "out"
    extra = add_node(cluster, num_cpus=2)
    unfinished = out / "trials" if results == "shared" else Delivery(results, name_among_studies(out)).scratch
    watcher = Disturber(unfinished, lambda manifest: cluster.remove_node(extra))
    choices = StudyChoices(executor="ray", address=cluster.address, results=results)
    outcome = run_study(
        write_study(STUDY.replace("seeds = 2", "seeds = 2\nretries = 5"), rounds=ROUNDS),
        out,
        choices,
        progress=watcher,
    )
    assert len(outcome.complete) == 4
    assert outcome.failed == ()
    # Four trials on four cores: the node that went took some of them along.
    assert watcher.failures
    same_tables(tables_of(out), undisturbed)


@pytest.mark.slow
def test_a_trial_that_fails_goes_on_elsewhere_from_its_checkpoint(
    cluster: Any, write_study: Any, tmp_path: Path
) -> None:
    """A model of the user's own raises once; the unfinished trial travels home and out again."""
    study = '[study]\nbase = "base.toml"\n'
    path = write_study(study)
    (path.parent / "once_models.py").write_text(
        "from pathlib import Path\n"
        "from fdsim.strategies.dropout import Dropout\n\n"
        "class Once(Dropout):\n"
        '    """Raises in round 5, once."""\n'
        "    mark: str\n"
        "    def blend(self, state, cohort):\n"
        "        if cohort.round_index == 5 and not Path(self.mark).exists():\n"
        "            Path(self.mark).touch()\n"
        "            raise ZeroDivisionError('once')\n"
        "        return super().blend(state, cohort)\n"
    )
    more = f'\n[[strategies]]\nkind = "once_models:Once"\nmark = "{tmp_path / "mark"}"\n'
    write_study(study, rounds=8, more=more)
    out = tmp_path / "out"
    watcher = Disturber(out, None)
    outcome = run_study(path, out, StudyChoices(executor="ray", address=cluster.address), progress=watcher)
    assert len(outcome.complete) == 1
    assert "ZeroDivisionError: once" in watcher.failures[0]
    manifest = json.loads((out / read_study(out)["trials"][0]["folder"] / "run.json").read_text())
    assert len(manifest["sessions"]) == 2


@pytest.mark.slow
def test_one_run_over_two_actors_learns_what_one_process_learns(
    cluster: Any, study_in: Any, tmp_path: Path
) -> None:
    """Weighted sums, sketches and whole updates through a real object store; float64, so that sums agree."""
    from fdsim.distributed.sharding import Sharding
    from fdsim.pipeline import RunChoices, run_scenario
    from fdsim.scenario import load_scenario
    from fdsim.telemetry.reader import open_run

    more = '\n[[strategies]]\nkind = "fdms"\nname = "sketched"\nsketch_dim = 32\n[[strategies]]\nkind = "stale"\n'
    path = study_in(tmp_path / "world", "", rounds=6, more=more).with_name("base.toml")
    scenario = load_scenario(path, ['acceleration={ precision = "float64", device = "cpu" }'])
    run_scenario(scenario, tmp_path / "one")
    run_scenario(scenario, tmp_path / "two", RunChoices(sharding=Sharding(2, cluster.address)))
    one, two = open_run(tmp_path / "one").rounds, open_run(tmp_path / "two").rounds
    exact = ["strategy", "round", "clients_active", "test_accuracy", "pairs_computed", "friend_hit_frac"]
    pd.testing.assert_frame_equal(two[exact], one[exact])
    for column in ("test_loss", "train_loss", "update_norm"):
        np.testing.assert_allclose(two[column], one[column], rtol=1e-9)
    assert set(one["strategy"]) == {"dropout", "fdms", "sketched", "stale"}


def test_an_address_nobody_answers_fails_within_seconds(write_study: Any, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: nobody can answer there
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        began_s = time.monotonic()
        with pytest.raises(InputError, match=rf"--address {address}: no answer from 127\.0\.0\.1, port"):
            run_study(write_study(STUDY), tmp_path / "out", StudyChoices(executor="ray", address=address))
    assert time.monotonic() - began_s < 60
    assert list(tmp_path.glob("out/trials/*")) == []


@pytest.mark.parametrize(
    ("choices", "told"),
    [
        ({"executor": "slurm"}, "no executor called 'slurm'. one of: local, ray"),
        ({"executor": "local", "address": "auto"}, "--address: is for a Ray cluster. add --executor ray"),
        ({"executor": "ray", "results": "nowhere://x"}, "no file system for 'nowhere://'"),
        ({"executor": "ray", "results": "file:///proc/fdsim"}, "results cannot be written there"),
        ({"executor": "ray", "address": "here:there"}, "'there' is not a port"),
    ],
)
def test_choices_that_make_no_sense(
    write_study: Any, tmp_path: Path, choices: dict[str, str], told: str
) -> None:
    pytest.importorskip("ray")
    with pytest.raises(InputError) as error:
        run_study(write_study(STUDY), tmp_path / "out", StudyChoices(**choices))
    assert told in str(error.value)


def test_ray_is_not_loaded_unless_asked_for() -> None:
    code = (
        "import sys, fdsim.cli.app, fdsim.pipeline, fdsim.studies.launch, fdsim.studies.scheduler, fdsim.comparison.compare\n"
        "print('ray' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
