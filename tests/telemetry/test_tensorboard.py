"""TensorBoard files carry the rounds table, with simulated time as wall time."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from fake_run import FakeScenario

from fdsim.errors import InputError
from fdsim.telemetry import tensorboard
from fdsim.telemetry.callback import Callbacks
from fdsim.telemetry.folder import RunFolder
from fdsim.telemetry.tensorboard import TensorBoard

TOML = "[telemetry]\ntensorboard = true\n"
SCENARIO: Any = FakeScenario(TOML, labels=("a/b",), rounds=5)


def scalars(folder: Path, tag: str) -> list[Any]:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = accumulator.EventAccumulator(str(folder))
    found.Reload()
    return list(found.Scalars(tag))


def test_rounds_reach_tensorboard(tmp_path: Path, fake: ModuleType) -> None:
    pytest.importorskip("tensorboard")
    board = TensorBoard()
    with Callbacks([board]).during(SCENARIO, tmp_path / "run"):
        board.strategy_begin("a/b", 0)
        for index in range(5):
            board.round_end("a/b", fake.fake_row(index, 0.5 + index))
        board.strategy_end("a/b", None)
    loss = scalars(tmp_path / "run" / "tensorboard" / "strategy=a%2Fb", "train_loss")
    assert [event.step for event in loss] == [0, 1, 2, 3, 4]
    assert [event.value for event in loss] == [0.5, 1.5, 2.5, 3.5, 4.5]
    # sim_time_s of the fake rows is the value too.
    assert [event.wall_time for event in loss] == [0.5, 1.5, 2.5, 3.5, 4.5]
    accuracy = scalars(tmp_path / "run" / "tensorboard" / "strategy=a%2Fb", "test_accuracy")
    assert [event.step for event in accuracy] == [0, 2, 3]


def test_resuming_purges_the_rounds_that_are_learned_again(tmp_path: Path, fake: ModuleType) -> None:
    pytest.importorskip("tensorboard")
    for start, stop in ((0, 4), (2, 5)):
        board = TensorBoard(tmp_path)
        with suppress(KeyboardInterrupt), Callbacks([board]).during(SCENARIO, tmp_path / "run"):
            board.strategy_begin("a", start)
            for index in range(start, stop):
                board.round_end("a", fake.fake_row(index, float(start)))
            raise KeyboardInterrupt
    assert [(event.step, event.value) for event in scalars(tmp_path / "strategy=a", "train_loss")] == [
        (0, 0.0),
        (1, 0.0),
        (2, 2.0),
        (3, 2.0),
        (4, 2.0),
    ]


def test_a_missing_package_is_told_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorboard, "find_spec", lambda _: None)
    with pytest.raises(
        InputError, match=r"telemetry\.tensorboard: .* not installed.*pip install tensorboard"
    ):
        RunFolder.create(tmp_path / "run", SCENARIO)
