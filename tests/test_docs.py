"""What docs/architecture.md says is so: the walk of a round names functions that are where it says, and counts them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
STEPS = re.findall(r"^\| ([a-z ]+) \| (\d+) \| (.+) \|$", ARCHITECTURE, flags=re.MULTILINE)


def hops(line: str) -> list[tuple[str, str]]:
    """The (file, function) pairs of one step of the walk."""
    found = []
    for piece in line.split(" · "):
        file, names = re.fullmatch(r"`([\w/.]+)` (.+)", piece).groups()  # type: ignore[union-attr]
        found += [(file, name.replace("\\", "")) for name in names.split(", ")]
    return found


def test_the_walk_is_there() -> None:
    assert [step for step, _, _ in STEPS] == [
        "to a scenario",
        "what it means",
        "the run folder",
        "a round of the trace",
        "a round of learning",
        "the row",
    ]


@pytest.mark.parametrize(("step", "count", "line"), STEPS, ids=[step for step, _, _ in STEPS])
def test_the_walk_names_what_is_there(step: str, count: str, line: str) -> None:
    missing = [
        f"{file}: {name}"
        for file, name in hops(line)
        if not re.search(
            rf"^\s*(def|class) {re.escape(name)}\b",
            (ROOT / "fdsim" / file).read_text(encoding="utf-8"),
            flags=re.MULTILINE,
        )
    ]
    assert missing == []
    assert len(hops(line)) == int(count)


#: Runs the quickstart and prints every function of ours that it entered, as file:name; a class is its __init__.
TRACED = """
import sys, threading
seen = set()
def note(frame, event, arg):
    found, file = frame.f_code.co_filename.rpartition("/fdsim/")[1:]
    if event == "call" and found:
        *_, owner, name = ("", *frame.f_code.co_qualname.split("."))
        seen.add(f"{file}:{owner if name == '__init__' else name}")
from fdsim.cli.app import main
threading.setprofile(note)
sys.setprofile(note)
sys.argv = ["fdsim", "run", "scenarios/quickstart.toml", "--out", sys.argv[1]]
sys.argv += ["--set", "rounds=2", "--set", 'strategies=[{kind="fdms"}]']
try:
    main()
finally:
    sys.setprofile(None)
    print("", *sorted(seen), sep=chr(10))
"""


@pytest.mark.slow
def test_the_walk_is_walked(tmp_path: Path) -> None:
    """The quickstart enters every function that the walk names."""
    done = subprocess.run(
        [sys.executable, "-c", TRACED, str(tmp_path / "run")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    entered = set(done.stdout.splitlines())
    walk = [f"{file}:{name}" for _, _, line in STEPS for file, name in hops(line)]
    assert [hop for hop in walk if hop not in entered] == []
    assert len(walk) == len(set(walk)), "each is counted once"


def test_the_sum_is_right() -> None:
    every = [hop for _, _, line in STEPS for hop in hops(line)]
    assert f"Together {len(every)}, in {len({file for file, _ in every})} files." in ARCHITECTURE


def test_pages_link_to_files_that_exist() -> None:
    for page in (ROOT / "docs").glob("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_contributing_names_what_is_there() -> None:
    """Files exist, and back-ticked names are found in one of them."""
    page = (ROOT / "docs" / "CONTRIBUTING.md").read_text(encoding="utf-8")
    files = [ROOT / name for name in re.findall(r"`((?:fdsim|tests)/[\w/]+\.\w+)`", page)]
    assert files
    assert [str(file) for file in files if not file.exists()] == []
    source = "\n".join(file.read_text(encoding="utf-8") for file in files)
    steps = page[page.index("## Add a battery model") : page.index("## Send a change")]
    names = re.findall(r"`([A-Za-z_]{4,})`", steps)
    assert [name for name in names if not re.search(rf"\b{name}\b", source)] == []


def test_the_reference_stays_short_enough_to_be_read_first() -> None:
    lines = (ROOT / "fdsim/devices/reference.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 400


PAGES = ROOT / "docs" / "pages"


def test_the_python_reference_has_every_public_name() -> None:
    import fdsim

    page = (PAGES / "reference/python.md").read_text(encoding="utf-8")
    assert [name for name in fdsim._PUBLIC if f"::: fdsim.{name}\n" not in page] == []


def test_every_figure_that_a_run_can_plot_is_named_where_people_look() -> None:
    import fdsim
    from fdsim.report.notebook import FIGURES

    listed = " ".join((fdsim.Run.plot.__doc__ or "").split()).partition("There is: ")[2].partition(".")[0]
    assert listed.split(", ") == list(FIGURES)
    page = " ".join((PAGES / "howto/notebook.md").read_text(encoding="utf-8").split())
    assert f"the figures of the report: {', '.join(FIGURES)}." in page


def test_generated_pages_spell_tables_as_a_file_does() -> None:
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("generated", ROOT / "docs/generated.py")
    assert spec is not None
    assert spec.loader is not None
    generated = module_from_spec(spec)
    spec.loader.exec_module(generated)
    pages = {name: write() for name, write in generated.GENERATED.items()}
    scenario = pages["reference/scenario.md"]
    for heading in (
        "[training]",
        "[server.eligibility]",
        "[[fleet]]",
        "[fleet.crash]",
        "[[cells]]",
        "[[outages]]",
    ):
        assert f"\n## `{heading}`\n" in scenario
    assert re.search(
        r"^\| `rounds` \| whole number > 0.* \| \*\*required\*\* \| rounds of learning \|$", scenario, re.M
    )
    assert "| `tensorboard` |" in scenario
    assert "| `threads_per_run` |" in pages["reference/study.md"]
    assert "`[E]` an engineering choice" in pages["reference/profiles.md"]
    assert "### strategy: fdms\n" in pages["reference/kinds.md"]
    assert "\n### fdsim study\n" in pages["reference/commands.md"]
