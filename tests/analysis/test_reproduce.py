"""The script behind the results runs each trial once, with the given data."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from fdsim.scenario import load_scenario

ROOT = Path(__file__).resolve().parents[2]
STAND_IN = '#!/bin/sh\nfor word in "$@"; do echo "$word"; done >> "$CALLS"\necho END >> "$CALLS"\n'


def _calls(tmp_path: Path, **settings: str) -> list[list[str]]:
    """What the script would have typed, with a stand-in for fdsim that only writes it down."""
    command = tmp_path / "fdsim"
    command.write_text(STAND_IN, encoding="utf-8")
    command.chmod(0o755)
    calls = tmp_path / "calls"
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    words = ["sh", "analysis/reproduce.sh", "images", str(tmp_path / "out"), "7"]
    subprocess.run(words, cwd=ROOT, check=True, env={"PATH": path, "CALLS": str(calls), **settings})
    return [
        part.strip().split("\n") for part in calls.read_text(encoding="utf-8").split("END\n") if part.strip()
    ]


def test_every_trial_is_run_once_and_is_a_valid_scenario(tmp_path: Path) -> None:
    calls = _calls(tmp_path)
    assert len(calls) == 21
    folders = [call[call.index("--out") + 1] for call in calls]
    assert len(set(folders)) == 21
    for call in calls:
        sets = [call[i + 1] for i, word in enumerate(call) if word == "--set"]
        scenario = load_scenario(ROOT / call[1], sets)
        assert scenario.seed == 7
        assert str(scenario.data.root) == "images"  # type: ignore[attr-defined]


def test_parquet_files_stand_in_for_cifar10_alone(tmp_path: Path) -> None:
    for call in _calls(tmp_path, CIFAR10_PARQUET="pictures"):
        sets = [call[i + 1] for i, word in enumerate(call) if word == "--set"]
        kind = load_scenario(ROOT / call[1], sets).data.kind
        assert kind == ("parquet" if "cifar10" in call[1] else kind)
        assert ("data.root=images" in sets) == ("cifar10" not in call[1])
