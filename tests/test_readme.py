"""The README and the site are true: every command and snippet in them is executed as written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8") if (ROOT / "README.md").exists() else ""
INSTALL_AND_RUN = "pip install -e . && fdsim run scenarios/quickstart.toml"
INSTALL_AND_TEST = "pip install -e '.[test]' && pytest"


PAGES = sorted((ROOT / "docs/pages").rglob("*.md"))
#: How a page of the site is named in what a test says.
NAMES = [path.relative_to(ROOT / "docs/pages").as_posix() for path in PAGES]


def pieces_of(text: str) -> list[tuple[str, str]]:
    """The blocks of a page that do something, in order: (language, text)."""
    return re.findall(r"^```(bash|python|toml)\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def do(language: str, text: str, folder: Path, environment: dict[str, str]) -> None:
    """Do what a reader would with a block: save it where its first line names a file, else run it."""
    named = re.match(r"# ([\w.]+\.(?:py|toml))\n", text)
    if named:
        (folder / named.group(1)).write_text(text)
    if language == "toml":
        return
    words = ["bash", "-euo", "pipefail", "-c", text] if language == "bash" else [sys.executable, "-c", text]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, f"{text}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def checkout(target: Path) -> Path:
    """Copy what git would give a newcomer: the tracked files, as they are now."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        shutil.copytree(ROOT, target, ignore=shutil.ignore_patterns("runs", "studies", ".git", ".*cache"))
        return target
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)
    return target


def test_the_two_lines_are_there() -> None:
    lines = [line for block in blocks("bash") for line in block.splitlines()]
    assert INSTALL_AND_RUN in lines
    assert INSTALL_AND_TEST in lines


def test_the_ci_script_runs_the_readmes_test_line() -> None:
    assert (
        INSTALL_AND_TEST.replace(".", r"\.").replace("[", r"\[").replace("]", r"\]")
        in (ROOT / ".ci/run").read_text()
    )


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A fresh copy of the repository and an environment in which `fdsim` and `python` are this interpreter's."""
    folder = checkout(tmp_path_factory.mktemp("newcomer"))
    tools = tmp_path_factory.mktemp("bin")
    for name, words in {"fdsim": "-m fdsim", "python": ""}.items():
        (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (tools / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "PYTHONPATH": str(folder),
        "OMP_NUM_THREADS": "2",
    }
    return folder, environment


def test_every_command_and_snippet_works_in_order(newcomer: tuple[Path, dict[str, str]]) -> None:
    """The run comes first, as for a reader; later blocks look at what it left behind."""
    folder, environment = newcomer
    pieces = pieces_of(README)
    assert len(pieces) >= 4
    for language, text in pieces:
        if INSTALL_AND_TEST in text:
            continue  # the CI script's part
        # Installing is the slow test's part; here the same command runs with this interpreter's packages.
        do(language, text.replace(INSTALL_AND_RUN, INSTALL_AND_RUN.split("&& ")[1]), folder, environment)


def test_the_readme_counts_each_dropout_once(newcomer: tuple[Path, dict[str, str]]) -> None:
    """After the commands above: what the snippet of the README prints is what the trace holds."""
    folder, environment = newcomer
    if not (folder / "runs/quickstart").is_dir():
        pytest.skip("the commands of the README did not run")
    snippet = next(text for text in blocks("python") if "outcome" in text)
    said = subprocess.run(
        [sys.executable, "-c", snippet],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    import pandas as pd

    trace = pd.read_parquet(folder / "runs/quickstart/trace.parquet")
    for cause, count in trace[trace.outcome == "dropped"].cause.astype(str).value_counts().items():
        assert re.search(rf"^{cause} +{count}$", said, flags=re.MULTILINE), said
    assert not re.search(r"^\d+ +\d+\.0$", said, flags=re.MULTILINE), "clients are whole numbers"


def test_the_readme_is_short_and_its_links_lead_somewhere() -> None:
    assert len(README.splitlines()) <= 150
    for target in re.findall(r"\]\(([^)#]+)|src=\"([^\"]+)\"", README):
        target = "".join(target)
        assert target.startswith("http") or (ROOT / target).exists(), target


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_command_and_snippet_of_a_page_works_in_order(
    page: Path, newcomer: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    """Each page stands alone: it begins in a folder that has the scenarios and nothing else."""
    checked_out, environment = newcomer
    if page.name == "cluster.md":
        pytest.importorskip("ray", reason="ray is not installed")
    (tmp_path / "scenarios").symlink_to(checked_out / "scenarios")
    for language, text in pieces_of(page.read_text(encoding="utf-8")):
        do(language, text, tmp_path, environment)


def test_the_site_is_built_without_a_complaint(tmp_path: Path) -> None:
    """Strictly: no page without a place in the menu, no link or anchor that leads nowhere."""
    pytest.importorskip("mkdocs", reason="pip install -e '.[docs]' for the site")
    pytest.importorskip("mkdocstrings", reason="pip install -e '.[docs]' for the site")
    words = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "-f",
        "docs/mkdocs.yml",
        "-d",
        str(tmp_path),
    ]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-4000:]
    for page, words_of_it in {
        "reference/columns": "substitution_error",
        "reference/kinds": "tapered",
        "reference/scenario": "deadline_s",
        "reference/commands": "fdsim trace import",
        "reference/python": "after_round",
        "project/architecture": "The walk of a round",
    }.items():
        assert words_of_it in (tmp_path / page / "index.html").read_text(encoding="utf-8"), page


@pytest.mark.slow
def test_the_first_line_works_in_an_empty_virtual_environment(tmp_path: Path) -> None:
    folder = checkout(tmp_path / "clone")
    venv.create(tmp_path / "venv", with_pip=True)
    environment = {
        key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    environment["PATH"] = f"{tmp_path / 'venv/bin'}:{environment['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", INSTALL_AND_RUN],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "fdms" in done.stdout
    read = "import pandas as pd; print(len(pd.read_parquet('runs/quickstart/rounds')))"
    rows = subprocess.run(
        ["python", "-c", read], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    assert int(rows.stdout) >= 240
