"""Checkpoints: any state comes back as it went, damaged files are passed over, and nothing in them runs."""

from __future__ import annotations

import errno
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fdsim.errors import StorageError
from fdsim.telemetry import checkpoint
from fdsim.telemetry.checkpoint import clear, last_good, save

STATE: dict[str, Any] = {
    "params": torch.arange(10, dtype=torch.float64) / 3,
    "half": torch.ones(3, dtype=torch.bfloat16),
    "R": np.arange(12, dtype=np.float32).reshape(3, 4)[:, ::2],
    "mask": np.array([True, False]),
    "words": np.array(["a", "bc"]),
    "scalar": np.float32(0.1),
    "empty": np.empty((0, 3), np.int64),
    "none": None,
    "text": "é",
    "big": 2**127 + 1,
    "nan": float("nan"),
    "nested": {"list": [1, (2, 3.5), {"x": np.int8(4)}], 7: "seven", (1, 2): np.arange(2)},
    "rng": np.random.Generator(np.random.PCG64(3)).bit_generator.state,
}


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray | np.generic):
        return type(one) is type(other) and one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, dict):
        return (
            isinstance(other, dict) and list(one) == list(other) and all(same(one[k], other[k]) for k in one)
        )
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and (one == other or one != one)


def saved(folder: Path, *rounds: int) -> Path:
    for next_round in rounds:
        save(folder / "c", {**STATE, "next_round": next_round}, next_round, temporary=folder / "tmp")
    return folder / "c"


def state_of(folder: Path) -> dict[str, Any]:
    found = last_good(folder)
    assert found is not None
    return found.state()


def test_every_kind_of_state_comes_back_as_it_went(tmp_path: Path) -> None:
    assert same(state_of(saved(tmp_path, 10)), {**STATE, "next_round": 10})


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    folder = saved(tmp_path, 5, 10, 15, 20)
    assert sorted(path.name for path in folder.iterdir()) == [
        "round-00000015.checkpoint",
        "round-00000020.checkpoint",
    ]
    assert state_of(folder)["next_round"] == 20
    assert not list((tmp_path / "tmp").iterdir())


def test_a_truncated_checkpoint_falls_back_to_the_one_before(tmp_path: Path) -> None:
    folder = saved(tmp_path, 10, 20)
    newest = folder / "round-00000020.checkpoint"
    content = newest.read_bytes()
    for length in np.random.default_rng(0).integers(0, len(content), 30):
        newest.write_bytes(content[:length])
        assert state_of(folder)["next_round"] == 10
    newest.write_bytes(content)
    assert state_of(folder)["next_round"] == 20


def test_a_flipped_byte_anywhere_falls_back_to_the_one_before(tmp_path: Path) -> None:
    folder = saved(tmp_path, 10, 20)
    newest = folder / "round-00000020.checkpoint"
    content = newest.read_bytes()
    header_text = len(content[:256].rstrip())
    places = [*range(header_text), *np.random.default_rng(1).integers(256, len(content), 100)]
    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= 0x10
        newest.write_bytes(damaged)
        found = last_good(folder)
        assert found is not None
        # A flip in the JSON's own spaces changes nothing; any other is noticed.
        assert found.next_round == 10 or content[place : place + 1] == b" "


def test_two_damaged_checkpoints_mean_starting_over(tmp_path: Path) -> None:
    folder = saved(tmp_path, 10, 20)
    for path in folder.iterdir():
        path.write_bytes(b"")
    assert last_good(folder) is None
    assert last_good(tmp_path / "nowhere") is None


def test_a_view_does_not_drag_its_storage_along(tmp_path: Path) -> None:
    save(tmp_path / "c", {"row": torch.zeros(1000, 1000)[3]}, 1, temporary=tmp_path / "tmp")
    assert next((tmp_path / "c").iterdir()).stat().st_size < 10_000


def test_what_cannot_be_kept_is_refused_when_saving(tmp_path: Path) -> None:
    for value in (object(), {1, 2}, np.array([object()])):
        with pytest.raises(TypeError, match="a checkpoint cannot hold"):
            save(tmp_path / "c", {"x": value}, 1, temporary=tmp_path / "tmp")
    assert last_good(tmp_path / "c") is None


class Trap:
    """Pickles as a call that leaves a trace."""

    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.victim,))


def test_a_checkpoint_from_elsewhere_cannot_run_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = tmp_path / "victim"
    monkeypatch.setattr(checkpoint, "_pack", lambda state: state)
    save(tmp_path / "c", {"x": Trap(victim)}, 1, temporary=tmp_path / "tmp")
    with pytest.raises(pickle.UnpicklingError):
        state_of(tmp_path / "c")
    assert not victim.exists()


def test_a_disk_that_fills_while_saving_leaves_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved(tmp_path, 10)

    class Full(checkpoint._HashingSink):
        def __init__(self, file: Any) -> None:
            super().__init__(_FullFile())

    monkeypatch.setattr(checkpoint, "_HashingSink", Full)
    with pytest.raises(StorageError, match=r"round-00000020\.checkpoint: the disk is full.*--resume"):
        saved(tmp_path, 20)
    assert state_of(folder)["next_round"] == 10
    assert not list((tmp_path / "tmp").iterdir())


class _FullFile:
    def write(self, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_clearing_removes_the_folder(tmp_path: Path) -> None:
    folder = saved(tmp_path, 10, 20)
    clear(folder)
    assert not folder.exists()
    clear(folder)
