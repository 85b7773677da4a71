"""The peers' simulators train what the engine trains, and may be missing."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from fdsim.bench import engine as bench
from fdsim.bench import peers as bench_peers
from fdsim.bench.peers import PeerTiming, peer_results, run_flower, time_flower, time_pfl
from fdsim.cli.bench import app
from fdsim.errors import ScenarioError
from fdsim.learning.config.acceleration import Acceleration
from fdsim.learning.config.training import Training
from fdsim.learning.nets.library import Mlp

SMALL = bench.EngineWorkload(
    "small", Mlp(hidden=(3,)), (1, 4, 4), 4, 6, Training(local_epochs=2, batch_size=3), 0.0
)
TIMING = bench.Timing(
    SMALL,
    plain_s=2.0,
    plain_threads=1,
    threads=(1, 2),
    engine_s=0.5,
    first_s=1.0,
    gflops=1.0,
    plan="",
    convolutions="torch",
)


CPU = Acceleration(device="cpu")


def peer_that_takes(round_s: float):
    """Make a peer whose rounds take so long."""

    def time_peer(workload, *, rounds, between, **_):
        for _ in range(rounds):
            between()
        return PeerTiming(3.0, round_s)

    return time_peer


@pytest.fixture
def no_flower(monkeypatch):
    monkeypatch.setitem(sys.modules, "flwr.app", None)


@pytest.fixture
def no_pfl(monkeypatch):
    monkeypatch.setitem(sys.modules, "pfl.aggregate.simulate", None)


@pytest.fixture
def versions(monkeypatch):
    monkeypatch.setattr(bench_peers, "version", lambda package: "1.2.3")


def test_the_first_round_counts_apart():
    assert PeerTiming.of([3.0, 2.0, 1.5]) == PeerTiming(first_s=3.0, round_s=1.5)


@pytest.mark.usefixtures("no_flower", "no_pfl")
@pytest.mark.parametrize("time_peer", [time_pfl, time_flower])
def test_a_missing_peer_names_the_extra(time_peer):
    with pytest.raises(ScenarioError, match=r"cannot be imported.*pip install 'fdsim\[peers\]'"):
        time_peer(SMALL, rounds=2)


@pytest.mark.usefixtures("no_flower", "versions")
def test_without_flower_pfl_is_still_timed(monkeypatch):
    monkeypatch.setattr(bench_peers, "time_pfl", peer_that_takes(1.5))
    monkeypatch.setattr(bench_peers, "best_s", lambda work, repeats: 0.5)
    timed, missing = peer_results([TIMING], CPU, rounds=2)
    assert timed.line == (
        "pfl-research 1.2.3, small: 1.500 s a round, 3.00 times the engine's 0.500 s; the first 3.000 s; threads: 1"
    )
    assert timed.ratio == 3.0
    assert missing.line.startswith("--peers: flwr cannot be imported")


@pytest.mark.usefixtures("no_pfl", "versions")
def test_without_pfl_flower_is_still_timed(monkeypatch):
    monkeypatch.setattr(bench_peers, "time_flower", peer_that_takes(1.0))
    monkeypatch.setattr(bench_peers, "best_s", lambda work, repeats: 0.5)
    missing, timed = peer_results([TIMING], CPU, rounds=2, flower_workers=3)
    assert missing.line.startswith("--peers: pfl cannot be imported")
    assert timed.line.startswith("Flower 1.2.3 on 3 Ray workers, small: 1.000 s a round, 2.00 times")


@pytest.mark.usefixtures("versions")
def test_peers_get_the_better_number_of_threads(monkeypatch):
    """Flower is given its workers with a thread each, or one worker with all threads."""
    tried: list[tuple[str, int, int]] = []

    def pfl(workload, **given):
        tried.append(("pfl", 1, torch.get_num_threads()))
        return peer_that_takes(2.0 / torch.get_num_threads())(workload, **given)

    def flower(workload, *, workers, threads, **given):
        tried.append(("flwr", workers, threads))
        return peer_that_takes(1.0 * threads)(workload, **given)

    monkeypatch.setattr(bench_peers, "best_s", lambda work, repeats: 0.5)
    monkeypatch.setattr(bench_peers, "time_pfl", pfl)
    monkeypatch.setattr(bench_peers, "time_flower", flower)
    found = list(peer_results([TIMING], CPU, rounds=2, flower_workers=4))
    assert tried == [("pfl", 1, 1), ("pfl", 1, 2), ("flwr", 4, 1), ("flwr", 1, 2)]
    assert [(result.threads, result.ratio) for result in found] == [(2, 2.0), (1, 2.0)]


@pytest.mark.usefixtures("no_flower", "versions")
def test_the_engine_is_timed_beside_each_peer(monkeypatch):
    """A round after each of the peer's; what follows its first does not count, the best of the others does."""
    times_s = iter([0.1, 0.8, 0.4, 0.6] * 2)
    monkeypatch.setattr(bench_peers, "time_pfl", peer_that_takes(2.0))
    monkeypatch.setattr(bench_peers, "best_s", lambda work, repeats: (work(), next(times_s))[1])
    timed, _ = peer_results([TIMING], CPU, rounds=4)
    assert timed.engine_s == 0.4
    assert timed.ratio == 5.0
    assert next(times_s, None) is None


def test_what_is_done_between_two_rounds_does_not_count():
    laps = bench_peers._Laps(lambda: time.sleep(0.1))
    laps.end()
    laps.end()
    assert len(laps.rounds_s) == 2
    assert max(laps.rounds_s) < 0.1


@pytest.mark.usefixtures("no_flower", "no_pfl")
def test_the_command_says_which_peers_are_missing():
    chosen = ["engine", "--only", "digits", "--repeats", "1", "--no-scaling", "--device", "cpu", "--peers"]
    answer = CliRunner().invoke(app, chosen, env={"COLUMNS": "80"})
    assert answer.exit_code == 0, answer.output
    said = [line for line in answer.output.splitlines() if line.startswith("--peers: ")]
    assert [line.split()[1] for line in said] == ["pfl", "flwr"]
    assert all(line.endswith("pip install 'fdsim[peers]'") for line in said)


def test_pfl_runs_the_same_round():
    pytest.importorskip("pfl", reason="pfl is not installed: pip install 'fdsim[peers]'")
    assert time_pfl(SMALL, rounds=2).round_s > 0


def test_flower_trains_what_the_engine_trains():
    pytest.importorskip("flwr.simulation", reason="flwr is not installed: pip install 'fdsim[peers]'")
    # In a process of its own: Ray leaves files open, and strict warnings fail whichever test they are collected in.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        run = pool.submit(run_flower, SMALL, rounds=2).result()
    timing = PeerTiming.of(run.rounds_s)
    assert timing.first_s > timing.round_s > 0
    assert run.steps == [4 * 2 * 2] * 2

    engine = bench.engine_for(SMALL, CPU)
    # The engine would begin with another draw of the net.
    weights = bench.PlainLoop(SMALL, torch.device("cpu"), clients=4).start
    for round_index in range(2):
        chunks = engine.train(weights, np.arange(4), round_index)
        weights = weights + sum(chunk.updates.sum(dim=0) for chunk in chunks) / 4
    trained = torch.cat([values.reshape(-1) for values in run.state.values()])
    torch.testing.assert_close(trained, weights)
