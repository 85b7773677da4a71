"""Many runs read as one: seed and swept settings become columns."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

import fdsim
from fdsim.errors import RunFolderError


@pytest.fixture(scope="module")
def study(fake: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("study")
    for every in (2, 4):
        for seed in (1, 2):
            fake.fake_run(
                root / f"every-{every}" / f"seed-{seed}", rounds=4, clients=3, every=every, seed=seed
            )
    fake.fake_run(root / "extra", rounds=4, clients=3, every=2, seed=3, labels=("zero",))
    return root


def test_runs_are_told_apart_by_seed_and_swept_settings(study: Path) -> None:
    found = fdsim.open_study(study)
    assert found.swept == ["telemetry.checkpoint_every"]
    assert found.rounds.columns[:4].tolist() == ["run", "seed", "telemetry.checkpoint_every", "strategy"]
    assert len(found.rounds) == 4 * 2 * 4 + 4
    sizes = found.rounds.groupby(["seed", "telemetry.checkpoint_every"]).size()
    assert sizes.to_dict() == {(1, 2): 8, (1, 4): 8, (2, 2): 8, (2, 4): 8, (3, 2): 4}
    assert set(found.rounds["strategy"].cat.categories) == {"fdms", "<script>/é", "zero"}
    one = found.rounds[found.rounds["run"] == "every-2/seed-1"]
    whole = fdsim.open_run(study / "every-2" / "seed-1").rounds
    assert one["test_loss"].dropna().tolist() == whole["test_loss"].dropna().tolist()


def test_parts_of_tables_can_be_read(study: Path) -> None:
    found = fdsim.open_study(study)
    some = found.read("clients", columns=["round", "outcome"], rounds=(2, None), strategy="zero")
    assert set(some["run"]) == {"extra"}
    assert len(some) == 2 * 3
    assert len(found.trace) == 5 * 4 * 3
    assert len(found.clients) == 4 * 2 * 4 * 3 + 12
    with pytest.raises(RunFolderError, match="no run has a strategy called 'nix'"):
        found.read("rounds", strategy="nix")


def test_the_manifest_has_one_row_per_run(study: Path) -> None:
    frame = fdsim.open_study(study).manifest
    assert len(frame) == 5
    assert set(frame["status"]) == {"complete"}
    assert "5 runs, swept: telemetry.checkpoint_every" in repr(fdsim.open_study(study))


def test_named_folders_make_a_study_too(study: Path) -> None:
    found = fdsim.open_study([study / "every-2" / "seed-1", study / "every-2" / "seed-2"])
    assert found.swept == []
    assert set(found.rounds["seed"]) == {1, 2}


def test_a_folder_without_runs_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="there is no run in it"):
        fdsim.open_study(tmp_path)
    with pytest.raises(RunFolderError, match="there is no such folder"):
        fdsim.open_study(tmp_path / "nowhere")
