"""Arrows never point up: the layers of all packages, what each may not load, and what must stay light."""

from __future__ import annotations

import ast
import io
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "fdsim"

#: From the lowest layer to the highest. A part imports itself and what lies below it, never a neighbour of its own
#: layer: devices, participation and strategies meet only in the trace, devices and learning never.
LAYERS: list[set[str]] = [
    {"errors"},
    {"files", "rng", "workload", "catalogue"},
    {"data", "kernels"},
    {"trace"},
    {"devices", "participation", "strategies"},
    {"telemetry"},
    {"learning"},
    {"scenario", "testing"},
    {"prepare"},
    {"progress", "distributed"},
    {"pipeline"},
    {"studies", "bench"},
    {"comparison"},
    {"inspect"},
    {"report"},
    {"api"},
    {"cli"},
    {"__main__"},
]

#: Imports that point up all the same, each for a reason. (fdsim/__init__.py, the public names, may import anything.)
ALLOWED = {
    # A run's scenario is read when somebody asks for it; everything else about a run is read without.
    ("telemetry.reader", "scenario"),
    # A run's methods in a notebook: its summary, its figures and its page, each made when somebody asks for it.
    ("telemetry.reader", "inspect"),
    ("telemetry.reader", "report"),
    # The scenario that a run folder writes down: for annotations only.
    ("telemetry.callback", "scenario"),
    ("telemetry.tensorboard", "scenario"),
    ("telemetry.folder", "scenario"),
    ("telemetry.scenario_keys", "scenario"),
}

#: Parts that must run without a package of other people's, also inside functions.
WITHOUT = {
    "devices": {"torch", "pandas"},
    "participation": {"torch", "pandas", "simpy"},
    "data": {"simpy"},
    "learning": {"simpy", "pandas"},
    "strategies": {"simpy", "pandas"},
    "telemetry": {"simpy"},
    "trace": {"simpy", "torch"},
}

MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
HEIGHT = {part: height for height, parts in enumerate(LAYERS) for part in parts}


def part_of(module: str) -> str:
    return module.split(".")[0]


def imports_of(path: Path) -> set[str]:
    """Every module that a file imports, at any depth of nesting."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            # `from fdsim import __version__` is a name, `from fdsim.telemetry import checkpoint` a module.
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name for name in inner if name.removeprefix("fdsim.") in MODULES} or {node.module}
    return found


def test_every_part_has_a_layer() -> None:
    assert {part_of(module) for module in MODULES} - {"__init__"} == set(HEIGHT)


@pytest.mark.parametrize("part", sorted(HEIGHT))
def test_arrows_never_point_up(part: str) -> None:
    broken = []
    for module, path in MODULES.items():
        if part_of(module) != part:
            continue
        for name in imports_of(path):
            if not name.startswith("fdsim."):
                continue
            other = part_of(name.removeprefix("fdsim."))
            upward = other != part and HEIGHT[other] >= HEIGHT[part]
            if upward and (module, other) not in ALLOWED:
                broken.append(f"{module} imports {name}")
    assert broken == []


def test_every_exception_is_still_needed() -> None:
    used = {
        (module, part_of(name.removeprefix("fdsim.")))
        for module, path in MODULES.items()
        for name in imports_of(path)
        if name.startswith("fdsim.")
    }
    assert used >= ALLOWED


@pytest.mark.parametrize("part", sorted(WITHOUT))
def test_a_part_does_without(part: str) -> None:
    broken = [
        f"{module} imports {name}"
        for module, path in MODULES.items()
        if part_of(module) == part
        for name in sorted(imports_of(path))
        if name.split(".")[0] in WITHOUT[part]
    ]
    assert broken == []


def test_the_root_stays_small() -> None:
    """A newcomer meets eleven modules and then packages in the order of the data flow."""
    assert len(list(PACKAGE.glob("*.py"))) <= 11


def _loaded(code: str) -> set[str]:
    program = f"import sys\n{code}\nprint(' '.join(sys.modules))"
    return set(
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout.split()
    )


def test_importing_fdsim_loads_nothing_heavy() -> None:
    assert not _loaded("import fdsim") & {"torch", "pandas", "simpy", "torchvision", "sklearn", "pyarrow"}


#: What takes long to import, and is nobody's business before a fleet, a net or a table is at hand.
HEAVY = {"torch", "pandas", "pyarrow", "simpy", "scipy", "sklearn", "torchvision", "ray", "plotly"}


#: What the quickstart does not name, and what is no part of checking it.
NOT_NAMED = {"fdsim.cli.run", "fdsim.studies", "fdsim.devices.models.replay", "fdsim.strategies.fedvarp"}


@pytest.mark.parametrize(
    ("words", "without"),
    [
        (["--help"], {*HEAVY, "numpy"}),
        (["run", "--help"], {*HEAVY, "numpy"}),
        (["list", "scenarios", "scenarios"], {*HEAVY, "numpy"}),
        (["list", "kinds"], {*HEAVY, "fdsim.cli.run", "fdsim.scenario"}),
        (["list", "keys"], HEAVY),
        (["list", "columns"], HEAVY - {"pyarrow"}),
        (["validate", "scenarios/quickstart.toml"], {*HEAVY - {"sklearn"}, *NOT_NAMED}),
        (["validate", "scenarios/flash_phones.toml"], {*HEAVY - {"sklearn", "pyarrow"}, "pyarrow.compute"}),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_a_verb_starts_without(words: list[str], without: set[str]) -> None:
    """A wall clock would measure the machine; these modules are what makes the difference.

    The digits are a file inside sklearn: its package is found, and its top module loaded, but nothing of scipy.
    """
    assert not _loaded_by(words) & without


def _loaded_by(words: list[str], *, code: int | None = None) -> set[str]:
    """Return what a verb loads that ends with an exit code."""
    return _loaded(
        f"import sys; sys.argv = ['fdsim', *{words!r}]\n"
        "import io, contextlib\nfrom fdsim.cli.app import main\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        f"    try:\n        main()\n    except SystemExit as stop:\n        assert (stop.code or 0) == {code or 0}\n"
    )


PAPER = ["validate", "scenarios/paper/cifar10_clustered.toml", "--set"]


def test_missing_files_of_a_data_set_are_told_without_torch(tmp_path: Path) -> None:
    asked = [*PAPER, f"data.root={tmp_path}", "--set", "data.download=false"]
    assert not _loaded_by(asked, code=2) & HEAVY


@pytest.mark.parametrize("file", ["cifar10_clustered.toml", "mnist_k40.study.toml"])
def test_what_is_yet_to_be_downloaded_is_checked_without_torch(tmp_path: Path, file: str) -> None:
    asked = ["validate", f"scenarios/paper/{file}", "--set", f"data.root={tmp_path / 'none'}"]
    assert not _loaded_by(asked) & HEAVY
    assert not (tmp_path / "none").exists()


def test_images_in_parquet_are_checked_without_torch(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (32, 32)).save(file, "PNG")
    path = tmp_path / "images.parquet"
    pq.write_table(pa.table({"img": [file.getvalue()] * 100, "label": [*range(10)] * 10}), path)
    asked = [*PAPER, "data.kind=parquet", "--set", f"data.train={path}", "--set", f"data.test={path}"]
    asked += ["--set", "data.partition.samples_per_client=5"]
    assert not _loaded_by(asked) & {*HEAVY - {"pyarrow"}, "pyarrow.compute"}


def test_a_class_builds_its_validator_when_it_is_first_asked() -> None:
    """Those of the whole menu would take longer to build than a scenario to check; a user's own say at once."""
    built = _loaded(
        "from fdsim.catalogue import Component, each_kind, find\n"
        "kinds = [find(family, kind) for family, kind, _ in each_kind()]\n"
        "class Own(Component):\n    family = 'battery'\n"
        "print(*(each.__name__ for each in [*kinds, Own] if each.__pydantic_complete__), end=' built ')"
    )
    assert {"Own", "built"} <= built
    assert not built & {"Tapered", "Mobile", "Digits", "Mlp", "Fdms"}


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


def test_a_stack_is_trained_without_compilers() -> None:
    """Together they take more memory than most rounds: triton 70 MB, torch's compiler and its sympy 40 MB.

    ResNet's convolutions are torch's own, so that autograd works, too.
    """
    code = (
        "from dataclasses import replace\nfrom fdsim.bench import engine as bench\n"
        "from fdsim.learning.config.acceleration import Acceleration\n"
        "few = replace(next(w for w in bench.WORKLOADS if w.name == 'resnet'), clients=2, samples=2)\n"
        "trainer = bench.engine_for(few, Acceleration(device='cpu'))\nassert trainer.plan.path == 'stacked'\n"
        "bench.one_round(trainer, 2)\ntrainer.evaluate(trainer.initial())"
    )
    assert not _loaded(code) & {"triton", "sympy", "torch._dynamo", "torch._inductor"}
