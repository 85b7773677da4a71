"""Small runs to report on: real ones of a few rounds, and a large one that is written without learning."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fdsim
from fdsim.files import hash_of
from fdsim.telemetry.config import Telemetry
from fdsim.telemetry.folder import RunFolder
from fdsim.telemetry.schema import ClientRows, RoundRow, SimilaritySnapshot
from fdsim.trace import Cause, Network, Outcome, Phase, TraceRound, blank_round, write_trace

TINY: dict[str, Any] = {
    "name": "tiny",
    "seed": 1,
    "rounds": 6,
    "data": {
        "kind": "digits",
        "partition": {"kind": "clustered", "clusters": 2, "labels_per_cluster": 2, "samples_per_client": 20},
    },
    "net": {"kind": "mlp"},
    "training": {"local_steps": 1, "batch_size": 10, "learning_rate": 0.1},
    "server": {"round_interval_s": 7200.0},
    "fleet": [{"profile": "midrange_phone", "count": 4}, {"profile": "budget_phone", "count": 4}],
    "strategies": [{"kind": "full"}, {"kind": "fdms"}, {"kind": "dropout"}, {"kind": "stale"}],
    "telemetry": {"similarity_every": 2, "events": True, "counterfactual": True},
}


def run_tiny(folder: Path, **changes: Any) -> Path:
    """Run the tiny scenario with some of its tables replaced; None leaves a table out."""
    from fdsim.catalogue import OwnCode, own_code
    from fdsim.pipeline import run_scenario
    from fdsim.scenario import parse_scenario

    tables = {key: value for key, value in {**TINY, **changes}.items() if value is not None}
    # As when a run is read: names that no scenario of one's own may have.
    with own_code(OwnCode("leave")):
        scenario = parse_scenario(tables)
    return run_scenario(scenario, folder)


@pytest.fixture(scope="session")
def make_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Run the tiny scenario, changed as asked, into a folder of its own."""
    return lambda **changes: run_tiny(tmp_path_factory.mktemp("run") / "run", **changes)


@pytest.fixture(scope="session")
def tiny(make_run: Callable[..., Path]) -> Path:
    """A complete run with everything on; nobody may change it."""
    return make_run()


def _trace_round(round_index: int, rng: np.random.Generator, clients: int) -> TraceRound:
    made = blank_round(round_index, clients, round_index * 1800.0, round_index * 1800.0 + 120.0)
    dropped = rng.random(clients) < 0.3
    made.outcome[:] = np.where(dropped, Outcome.dropped, Outcome.completed)
    made.cause[dropped] = rng.choice([c.value for c in Cause], dropped.sum())
    made.phase[:] = np.where(dropped, rng.choice([p.value for p in Phase], clients), Phase.upload)
    made.start_s[:] = made.round_start_s
    for name in ("download_s", "train_s", "upload_s"):
        getattr(made, name)[:] = rng.gamma(2.0, 10.0, clients)
    made.end_s[:] = made.start_s + made.download_s + made.train_s + made.upload_s
    made.soc_start[:] = made.soc_end[:] = rng.random(clients)
    made.network[:] = Network.wifi
    made.energy_j[:] = 5.0
    return made


def write_large(folder: Path, *, clients: int, rounds: int) -> Path:
    """Write a run of made-up numbers, as large as asked, in the way a real one is written."""
    rng = np.random.default_rng(0)
    cluster = np.arange(clients) % 10
    labels = ["full", "fdms", "dropout", "stale"]
    toml = (
        f'name = "large"\nseed = 0\nrounds = {rounds}\n[data]\nkind = "digits"\n[server]\ndeadline_s = 120.0\n'
        f'[[fleet]]\nprofile = "midrange_phone"\ncount = {clients}\n'
        + "".join(f'[[strategies]]\nkind = "{label}"\n' for label in labels)
        + "[telemetry]\nsimilarity_every = 100\n"
    )
    scenario: Any = SimpleNamespace(
        as_toml=lambda: toml,
        content_hash=hash_of(tomllib.loads(toml)),
        seed=0,
        name="large",
        rounds=rounds,
        strategies=[SimpleNamespace(label=label) for label in labels],
        telemetry=Telemetry(similarity_every=100),
    )
    with RunFolder.create(folder, scenario) as run:
        trace = [_trace_round(r, rng, clients) for r in range(rounds)]
        written = write_trace(run.trace_path, trace, true_cluster=cluster)
        run.manifest.update(trace_hash=written.content_hash)
        pairs = np.stack(np.triu_indices(clients, 1))
        for label in labels:
            with run.logs[label] as log:
                for r, told in enumerate(trace):
                    snapshot = None
                    if label == "fdms" and (r + 1) % 100 == 0:
                        snapshot = _snapshot(r, pairs, cluster, rng)
                    log.append(
                        _round_row(r, told, label, rounds), _client_rows(told, label, cluster, rng), snapshot
                    )
                log.finish()
        run.complete()
    return folder


def _fill(kind: type, known: dict[str, Any], blank: Any) -> Any:
    """Make a record from what is known; columns the report does not look at stay blank."""
    return kind(**{f.name: known.get(f.name, blank) for f in fields(kind)})


def _round_row(r: int, told: TraceRound, label: str, rounds: int) -> RoundRow:
    known = {
        "round": r,
        "sim_time_s": told.round_end_s,
        "clients_selected": told.clients,
        "clients_active": len(told.completed),
        "clients_dropped": len(told.dropped),
        "test_accuracy": 0.9 * (1 - np.exp(-5 * (r + 1) / rounds)) - 0.02 * len(label),
        "test_loss": 1.0 / (r + 1),
        "substitution_error": None if label == "full" else 1.0 / (r + 1),
        "energy_j": 5.0 * told.clients,
        "pairs_computed": 100 if label == "fdms" else 0,
        "stand_ins_max": 3 if label == "fdms" else None,
    }
    return _fill(RoundRow, known, None) if label == "full" else _fill(RoundRow, known, 0)


def _client_rows(told: TraceRound, label: str, cluster: np.ndarray, rng: np.random.Generator) -> ClientRows:
    stand_in = np.full(told.clients, -1)
    if label == "fdms":
        stand_in[told.dropped] = rng.choice(told.completed, len(told.dropped))
    known = {
        "round": told.round,
        "outcome": told.outcome,
        "cause": told.cause,
        "stand_in": stand_in,
        "true_cluster": cluster,
    }
    return _fill(ClientRows, known, np.zeros(told.clients, dtype=np.int64))


def _snapshot(r: int, pairs: np.ndarray, cluster: np.ndarray, rng: np.random.Generator) -> SimilaritySnapshot:
    alike = cluster[pairs[0]] == cluster[pairs[1]]
    known = {
        "round": r,
        "first": pairs[0],
        "second": pairs[1],
        "similarity": np.where(alike, 0.9, 0.4) + rng.normal(0, 0.02, len(alike)),
        "meetings": np.full(len(alike), r + 1),
    }
    return _fill(SimilaritySnapshot, known, np.zeros(len(alike)))


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 1 000 clients and 500 rounds."""
    return write_large(tmp_path_factory.mktemp("large") / "run", clients=1000, rounds=500)


@pytest.fixture
def opened(tiny: Path) -> fdsim.Run:
    """The complete run, opened."""
    return fdsim.open_run(tiny)


@pytest.fixture(scope="session")
def study(make_run: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two cases of two seeds each, complete."""
    folder = tmp_path_factory.mktemp("study") / "study"
    trials: list[dict[str, Any]] = []
    for alpha in (0.3, 0.6):
        for seed in (0, 1):
            run = make_run(
                seed=seed,
                rounds=3,
                fleet=None,
                participation={"kind": "fixed_ratio", "alpha": alpha, "clients": 8},
                strategies=[{"kind": "full"}, {"kind": "fdms"}, {"kind": "dropout"}],
                telemetry={"similarity_every": 1},
            )
            place = f"trials/{len(trials)}"
            shutil.copytree(run, folder / place)
            trials.append(
                {
                    "id": f"alpha={alpha} seed={seed}",
                    "folder": place,
                    "case": None,
                    "seed": seed,
                    "settings": {"participation.alpha": alpha},
                    "scenario_hash": json.loads((run / "run.json").read_text())["scenario_hash"],
                    "status": "complete",
                }
            )
    about = {"study_version": 1, "name": "alphas", "status": "complete", "swept": ["participation.alpha"]}
    (folder / "study.json").write_text(json.dumps({**about, "trials": trials}))
    (folder / "study.toml").write_text('[study]\nname = "alphas"\n')
    return folder
