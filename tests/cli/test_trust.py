"""A run folder is data, whatever it names; a scenario file is code, unless --no-code is given."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fdsim import open_run, open_study
from fdsim.catalogue import OwnCode, own_kinds
from fdsim.errors import CatalogueError, RunFolderError
from fdsim.inspect.verify import verify_run
from fdsim.run import RunChoices, run_scenario
from fdsim.scenario import load_scenario

#: What an attacker plants: it leaves a file behind when it is imported.
PAYLOAD = """
import pathlib
pathlib.Path(__file__).with_name("executed").touch()
from fdsim.strategies.dropout import Dropout
class Mine(Dropout):
    \"\"\"Mine.\"\"\"
    patience: int = 3
"""
SCENARIO = """
name = "tiny"
rounds = 3
net = "mlp"
data = { kind = "digits" }
training = { local_epochs = 1, batch_size = 20, learning_rate = 0.1 }
participation = { kind = "bernoulli", clients = 4, active_prob = 0.7 }
strategies = [{ kind = "dropout" }, { kind = "MODULE:Mine", name = "mine", patience = 5 }]
"""


@pytest.fixture
def own(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A scenario beside the module it names; a module's name is used once, since a process imports it once."""
    module = f"payload_{abs(hash(request.node.name)) % 10**9}"
    (tmp_path / f"{module}.py").write_text(PAYLOAD)
    path = tmp_path / "scenario.toml"
    path.write_text(SCENARIO.replace("MODULE", module))
    return path


@pytest.fixture
def planted(own: Path) -> Path:
    """A run with the module that its scenario names inside, as if it came from somebody else."""
    run = run_scenario(load_scenario(own), own.parent / "run", RunChoices())
    module = next(own.parent.glob("payload_*.py"))
    shutil.move(module, run / module.name)
    (own.parent / "executed").unlink()
    for name in [name for name in sys.modules if name.startswith("payload_")]:
        del sys.modules[name]
    return run


def executed(run: Path) -> bool:
    return (run / "executed").exists() or any(name.startswith("payload_") for name in sys.modules)


@pytest.mark.parametrize(
    "verb", ["show", "report", "compare", "list runs", "theory", "verify", "verify --quick"]
)
def test_reading_a_run_imports_nothing_that_it_names(
    verb: str, planted: Path, monkeypatch: pytest.MonkeyPatch, fdsim: Callable[..., Any]
) -> None:
    monkeypatch.chdir(planted)
    answer = fdsim(*verb.split(), planted.parent if verb == "list runs" else planted)
    assert not executed(planted)
    assert "This is a bug" not in answer.err
    if verb.startswith("verify"):
        assert answer.exit_code == 2
        assert "names code of its own" in answer.err
        assert "--code FOLDER" in answer.err
    elif verb != "theory":
        assert answer.exit_code == 0, answer.err


def test_python_readers_show_a_kind_as_it_is_written(planted: Path) -> None:
    run = open_run(planted)
    strategy = run.scenario.strategies[1]
    assert strategy.kind.endswith(":Mine")
    assert strategy.model_dump()["patience"] == 5
    assert run.scenario.content_hash == run.manifest["scenario_hash"]
    assert own_kinds(run.tables) == [strategy.kind]
    assert len(open_study(planted.parent).rounds) == 6
    assert not executed(planted)


def test_verify_imports_from_the_folder_that_is_given_and_says_so(
    planted: Path, fdsim: Callable[..., Any]
) -> None:
    trusted = planted.parent / "trusted"
    trusted.mkdir()
    (module,) = planted.glob("payload_*.py")
    shutil.copy(module, trusted)
    answer = fdsim("verify", planted, "--code", trusted)
    assert answer.exit_code == 0, answer.err
    assert f"code of your own: {module.stem} from {trusted / module.name}" in answer.out
    assert (trusted / "executed").exists()
    assert not (planted / "executed").exists()


def test_verify_checks_hashes_before_it_imports(planted: Path) -> None:
    path = planted / "scenario.toml"
    path.write_text(path.read_text().replace("patience = 5", "patience = 6"))
    with pytest.raises(RunFolderError, match="not the one that the run used"):
        verify_run(planted, code=planted)
    assert not executed(planted)


@pytest.mark.parametrize("verb", ["validate", "explain", "run"])
def test_no_code_refuses_kinds_of_ones_own(verb: str, own: Path, fdsim: Callable[..., Any]) -> None:
    answer = fdsim(verb, own, "--no-code")
    assert answer.exit_code == 2
    assert "names code of its own" in answer.err
    assert not executed(own.parent)
    net = 'net={ kind = "module", path = "' + next(own.parent.glob("payload_*.py")).stem + ':Mine" }'
    answer = fdsim(verb, own, "--no-code", "--set", net, "--set", "strategies=['dropout']")
    assert answer.exit_code == 2
    assert "names code of its own" in answer.err
    assert not executed(own.parent)


def test_a_file_beside_the_scenario_is_imported_for_no_package(own: Path) -> None:
    """Neither where the package is installed (json) nor where it is not: only what the scenario names is taken."""
    for name in ("json", "tensorboard", "torch", "a_package_nobody_has"):
        (own.parent / f"{name}.py").write_text("raise SystemExit('shadowed')")
    code = (
        f"from fdsim.scenario import load_scenario; load_scenario({str(own)!r}); import json, torch\n"
        "try:\n    import a_package_nobody_has\nexcept ModuleNotFoundError:\n    print('fine')"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=own.parent, env=environment)
    assert done.stdout == "fine\n", done.stderr
    command = [sys.executable, "-m", "fdsim", "validate", "scenario.toml"]
    environment["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    (own.parent / "torch.py").unlink()
    (own.parent / "json.py").unlink()
    done = subprocess.run(command, capture_output=True, text=True, cwd=own.parent, env=environment)
    assert done.returncode == 0, done.stderr


def test_a_module_of_ones_own_may_import_its_neighbours(own: Path) -> None:
    (module,) = own.parent.glob("payload_*.py")
    (own.parent / f"beside_{module.stem}.py").write_text("PATIENCE = 7")
    module.write_text(module.read_text() + f"    from beside_{module.stem} import PATIENCE as patience\n")
    module.write_text(
        module.read_text().replace("    patience: int = 3\n", "").replace("    from", "from", 1)
    )
    assert load_scenario(own, ["strategies.1={ kind = '" + module.stem + ":Mine' }"])


def test_a_module_that_ends_the_program_is_an_error(own: Path) -> None:
    next(own.parent.glob("payload_*.py")).write_text("import sys; sys.exit(0)")
    with pytest.raises(Exception, match=r"ends the program when it is imported \(sys.exit\(0\)\)"):
        load_scenario(own)


@pytest.mark.parametrize("kind", [".rel:X", "..:X", "a b:X", "é\x00:X", ":X", "a..b:X"])
def test_what_is_not_the_name_of_a_module_is_an_error_of_the_input(kind: str) -> None:
    from fdsim.catalogue import build

    with pytest.raises(CatalogueError, match="is not the name of a module"):
        build("strategy", kind)


def test_two_files_of_one_name_are_two_modules(tmp_path: Path) -> None:
    for folder, patience in (("one", 1), ("other", 2)):
        (tmp_path / folder).mkdir()
        text = PAYLOAD.replace("int = 3", f"int = {patience}")
        (tmp_path / folder / "payload_twice.py").write_text(text)
        path = tmp_path / folder / "scenario.toml"
        path.write_text(SCENARIO.replace("MODULE", "payload_twice").replace(", patience = 5", ""))
        assert load_scenario(path).strategies[1].model_dump()["patience"] == patience
    again = load_scenario(tmp_path / "one" / "scenario.toml", code=OwnCode("leave"))
    assert "patience" not in again.strategies[1].model_dump()
