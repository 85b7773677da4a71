"""Whatever a scenario or study file says, it is taken or refused with a message: never a bug, never a hang."""

from __future__ import annotations

import io
import signal
import tomllib
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import lru_cache
from pathlib import Path
from types import FrameType

import numpy as np
import pytest
from mutants import leaves, table_mutant, text_mutant, toml_files

from fdsim.cli.validate import validate
from fdsim.data import vision
from fdsim.data.datasets import Examples
from fdsim.errors import FdsimError
from fdsim.prepare import make_task, prepare, refuse_impossible
from fdsim.rng import stream
from fdsim.scenario import load_scenario

SEED = 15
ROOT = Path(__file__).resolve().parents[2]
#: A mutant that takes longer than this to be judged counts as a hang.
PATIENCE_S = 60
#: What is built stays below this, so that two tests can run beside each other.
BUILT_BYTES = 5e8


@pytest.fixture(autouse=True)
def _no_downloads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The public image sets as blank images: a mutant asks for them as often as not, and nobody waits for a network."""

    @lru_cache(maxsize=8)
    def blank(name: str, root: Path, download: bool, folder: str, classes: int) -> Examples:
        shape = (3, 32, 32) if "CIFAR" in name else (1, 28, 28)
        labels = np.arange(50_000, dtype=np.int64) % classes
        inputs = np.zeros((1, *shape), dtype=np.uint8)
        many = np.broadcast_to(inputs, (50_000, *shape))
        return Examples(many, labels, many[:1000], labels[:1000], classes=classes)

    monkeypatch.setattr(vision, "_load", blank)


class _Hang(BaseException):
    """A mutant took too long."""


@contextmanager
def _patience() -> Iterator[None]:
    def give_up(number: int, frame: FrameType | None) -> None:
        raise _Hang

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _judge(path: Path, *, build: bool) -> str:
    """Say what becomes of a file: valid, built, refused, or what went wrong."""
    quiet = io.StringIO()
    try:
        with _patience(), redirect_stdout(quiet), redirect_stderr(quiet):
            validate(path)
            if not build or b"study" in path.read_bytes():
                return "valid"
            prepared = prepare(load_scenario(path))
            try:
                refuse_impossible(prepared, BUILT_BYTES)
            except FdsimError:
                return "valid, too large to build here"
            make_task(prepared)
            return "valid and built"
    except FdsimError as error:
        told = str(error).replace("\n", "")
        fine = error.exit_code == 2 and told and told.isprintable()
        return "refused" if fine else f"exit code {error.exit_code}: {error!r}"
    except _Hang:
        return "hang"
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {str(error)[:200]} ({Path(last.filename).name}:{last.lineno})"


def _mutants(count: int, part: int, sources: list[Path]) -> Iterator[bytes]:
    texts = [path.read_text(encoding="utf-8") for path in sources]
    tables = [tomllib.loads(text) for text in texts]
    borrowed = [leaf for each in tables for leaf in leaves(each)]
    for index in range(count):
        rng = stream(SEED, "scenario mutants", part, index)
        source = index % len(sources)
        if rng.random() < 0.4:
            yield text_mutant(texts[source], rng)
        else:
            yield table_mutant(tables[source], borrowed, rng)


def _fuzz(count: int, folder: Path, sources: list[Path], *, part: int = 0, build: bool) -> Counter[str]:
    """Judge mutants of the sources, written where the sources' neighbours are; keep those that went wrong."""
    found = Counter[str]()
    for neighbour in sorted({path.parent for path in sources}):
        for path in neighbour.glob("*.toml"):
            (folder / path.name).write_bytes(path.read_bytes())
    for index, mutant in enumerate(_mutants(count, part, sources)):
        path = folder / "mutant.toml"
        path.write_bytes(mutant)
        verdict = _judge(path, build=build)
        found[verdict] += 1
        if verdict not in FINE:
            (folder / f"wrong-{index}.toml").write_bytes(mutant)
            print(f"{folder}/wrong-{index}.toml: {verdict}", flush=True)
    return found


FINE = frozenset({"refused", "valid", "valid and built", "valid, too large to build here"})


def test_a_few_mutants_of_scenarios_are_taken_or_refused(tmp_path: Path) -> None:
    found = _fuzz(
        80, tmp_path, [ROOT / "scenarios/quickstart.toml", ROOT / "scenarios/outage.toml"], build=False
    )
    assert set(found) <= FINE, found
    assert found["refused"] > 40


@pytest.mark.reliability
@pytest.mark.parametrize("part", range(4))
def test_mutants_of_every_shipped_file_are_taken_or_refused(
    part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    sources = toml_files(ROOT / "scenarios")
    found = _fuzz(3_000, tmp_path, sources, part=part, build=True)
    print(
        f"\nscenario mutants, seed {SEED}, part {part}: {found.total()} of {len(sources)} files: {dict(found)}"
    )
    assert set(found) <= FINE
