"""Arrows never point up: which part may import which, and what must stay light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "fdsim"

#: part → what its modules must never import, at any depth of nesting.
FORBIDDEN = {
    "devices": [
        "torch",
        "pandas",
        "fdsim.learning",
        "fdsim.strategies",
        "fdsim.telemetry",
        "fdsim.scenario",
        "fdsim.run",
    ],
    "participation": [
        "torch",
        "pandas",
        "simpy",
        "fdsim.learning",
        "fdsim.strategies",
        "fdsim.telemetry",
        "fdsim.scenario",
    ],
    "data": [
        "simpy",
        "fdsim.devices",
        "fdsim.learning",
        "fdsim.strategies",
        "fdsim.telemetry",
        "fdsim.scenario",
    ],
    "learning": ["simpy", "pandas", "fdsim.devices", "fdsim.participation", "fdsim.scenario", "fdsim.run"],
    "strategies": [
        "simpy",
        "pandas",
        "fdsim.devices",
        "fdsim.participation",
        "fdsim.scenario",
        "fdsim.run",
        "fdsim.telemetry",
    ],
    "telemetry": ["simpy", "fdsim.devices", "fdsim.run", "fdsim.report"],
}


def _imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


@pytest.mark.parametrize("part", FORBIDDEN)
def test_the_import_table_holds(part: str) -> None:
    broken = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in (PACKAGE / part).rglob("*.py")
        for name in sorted(_imports(path))
        if any(name == bad or name.startswith(bad + ".") for bad in FORBIDDEN[part])
    ]
    assert broken == []


def _loaded(code: str) -> set[str]:
    program = f"import sys\n{code}\nprint(' '.join(sys.modules))"
    return set(
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout.split()
    )


def test_importing_fdsim_loads_nothing_heavy() -> None:
    assert not _loaded("import fdsim") & {"torch", "pandas", "simpy", "torchvision", "sklearn", "pyarrow"}


def test_the_help_loads_nothing_heavy() -> None:
    assert not _loaded("import fdsim.cli.app") & {
        "torch",
        "pandas",
        "simpy",
        "torchvision",
        "sklearn",
        "pyarrow",
        "pydantic",
    }


def test_reading_a_scenario_loads_no_torch() -> None:
    code = "from fdsim.scenario import load_scenario; load_scenario('scenarios/quickstart.toml')"
    assert not _loaded(code) & {"torch", "pandas", "torchvision", "ray", "plotly"}


def test_a_trace_is_made_without_torch(tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv = ['fdsim', 'trace', 'make', 'scenarios/quickstart.toml', '--set', 'rounds=2', "
        f"'--out', {str(tmp_path / 't.parquet')!r}]\n"
        "from fdsim.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code\n"
        "assert 'torch' not in sys.modules, 'torch was loaded'"
    )
    _loaded(code)
    assert (tmp_path / "t.parquet").exists()
