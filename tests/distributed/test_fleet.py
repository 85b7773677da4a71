"""A fleet over several processes leaves the same file; what goes wrong in one of them is told here."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from fdsim.catalogue import import_also_from, own_module
from fdsim.distributed import fleet as spread_fleet
from fdsim.distributed.fleet import FleetSpread
from fdsim.errors import RunError
from fdsim.pipeline import simulate_trace
from fdsim.prepare import prepare
from fdsim.scenario import load_scenario
from fdsim.telemetry.callback import Callback

SCENARIO = """
name = "wide"
seed = 2
rounds = 6
[data]
kind = "synthetic"
shape = [1, 4, 4]
train_samples = 200
test_samples = 10
partition = { kind = "iid" }
[net]
kind = "mlp"
[training]
local_steps = 4
batch_size = 5
[server]
selection = { kind = "random", clients_per_round = 20 }
[[fleet]]
profile = "flash2020"
count = 30
[[fleet]]
profile = "flash2020"
count = 10
connectivity = { kind = "my_links:Sometimes" }
[[strategies]]
kind = "dropout"
"""
LINKS = '''
import os, signal
from fdsim.devices.models.connectivity import Connectivity, Spell
from fdsim.trace import Network

class Sometimes(Connectivity):
    """On and off by the hour."""
    fault: str = ""
    def spells(self, rng):
        print("models may print")
        # The parent checks the contract; faults are for the processes of the fleet.
        fault = "" if os.getpid() == PARENT else self.fault
        if fault == "raise":
            raise ZeroDivisionError("no such link")
        if fault == "zero":
            yield Spell(True, 0.0, Network.wifi, 1e7, 1e7, 0.01)
        if fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        while True:
            yield Spell(True, 60.0 + rng.uniform(0, 7200), Network.wifi, 1e7, 1e7, 0.01)
            yield Spell(False, 60.0 + rng.uniform(0, 7200), Network.none, 0.0, 0.0, 0.0)
'''


class Notes(Callback):
    """Keeps what was told."""

    def __init__(self) -> None:
        self.notes, self.parts, self.times = list[str](), list[float](), list[float]()

    def trace_note(self, note: str) -> None:
        self.notes.append(note)

    def trace_part(self, frac: float, simulated_to_s: float | None) -> None:
        self.parts.append(frac)

    def trace_time(self, t_s: float) -> None:
        self.times.append(t_s)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my_links.py").write_text(f"PARENT = {os.getpid()}\n" + LINKS)
    (tmp_path / "wide.toml").write_text(SCENARIO)
    return tmp_path


def made(folder: Path, spread: FleetSpread, told: Callback, *sets: str) -> bytes:
    scenario = load_scenario(folder / "wide.toml", sets)
    out = folder / "out" / "trace.parquet"
    simulate_trace(prepare(scenario), out, told, fleet=spread)
    return out.read_bytes()


def test_the_same_bytes_over_two_processes(folder: Path) -> None:
    """Kinds of the user's own, beside the scenario, are found there too; modules used before may be gone."""
    one, two = Notes(), Notes()
    (folder / "gone_by_now.py").write_text("")
    import_also_from(folder)
    own_module("gone_by_now")
    (folder / "gone_by_now.py").unlink()
    assert made(folder, FleetSpread(2), two) == made(folder, FleetSpread(1), one)
    assert not one.parts
    assert two.parts[-1] == 1.0
    assert two.parts == sorted(two.parts)
    assert len(two.times) == 6
    assert not two.notes
    assert os.listdir(folder / "out") == ["trace.parquet"]


def test_a_large_fleet_on_one_core_is_in_blocks_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = made(folder, FleetSpread(1), Callback())
    monkeypatch.setattr(spread_fleet, "WORTH_ROWS", 100)
    monkeypatch.setattr("fdsim.devices.engine.blocks.MOST_ROWS", 50)
    told = Notes()
    assert made(folder, FleetSpread(1), told) == expected
    assert told.parts == pytest.approx([1 / 3, 2 / 3, 1.0])


def test_devices_that_share_stay_together(folder: Path) -> None:
    told = Notes()
    eligible = 'server.selection = { kind = "all", pool = "eligible" }'
    assert made(folder, FleetSpread(2), told, eligible) == made(folder, FleetSpread(1), Notes(), eligible)
    assert len(told.notes) == 1
    assert "eligible" in told.notes[0]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        pytest.param("raise", "ZeroDivisionError: no such link", marks=pytest.mark.slow),
        ("zero", "gave a spell of 0.0 s"),
        pytest.param(
            "kill",
            "ended (signal 9)",
            marks=pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL"),
        ),
    ],
)
def test_what_goes_wrong_in_a_process_ends_the_run(
    folder: Path, fault: str, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RunError, match="^.*" + said.replace("(", r"\(").replace(")", r"\)")):
        made(folder, FleetSpread(2), Callback(), f"fleet.1.connectivity.fault={fault}")
    assert os.listdir(folder / "out") == []
    assert ("no such link" in capfd.readouterr().err) == (fault == "raise")


def test_a_small_fleet_needs_no_cluster(folder: Path) -> None:
    told = Notes()
    made(folder, FleetSpread(ray=True), told)
    assert "too small" in told.notes[0]


@pytest.mark.slow
def test_a_cluster_leaves_the_same_bytes(folder: Path) -> None:
    pytest.importorskip("ray")
    assert made(folder, FleetSpread(2, ray=True, address="local"), Callback()) == made(
        folder, FleetSpread(1), Callback()
    )


def test_blocks_of_a_killed_run_are_removed(folder: Path) -> None:
    from fdsim.telemetry.folder import RunFolder

    scenario: Any = load_scenario(folder / "wide.toml")
    with RunFolder.create(folder / "run", scenario):
        pass
    stray = folder / "run" / ".trace.parquet.blocks-1"
    stray.mkdir()
    (stray / "0").write_bytes(b"rows")
    with RunFolder.resume(folder / "run", scenario):
        assert not stray.exists()
