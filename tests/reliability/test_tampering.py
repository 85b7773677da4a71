"""Every file of a run, damaged, removed, exchanged or forged, under every verb: noticed or of no consequence, never a bug."""

from __future__ import annotations

import json
import re
import shutil
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from mutants import json_mutant
from warm_server import run, scenario_text
from whole_runs import same_run

import fdsim as package
from fdsim.errors import FdsimError
from fdsim.files import SEAL_BLANK, SEAL_KEY, SEAL_MARK, file_hash, seal
from fdsim.rng import stream

SEED = 15


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete run that nobody may change."""
    folder = tmp_path_factory.mktemp("made") / "run"
    run(str(folder))
    return folder


@pytest.fixture(scope="module")
def stopped(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, interrupted in its first strategy, a checkpoint behind it."""
    folder = tmp_path_factory.mktemp("stopped") / "run"

    class Stop:
        def round_end(self, label: str, row: Any) -> None:
            if row.round == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        package.run(scenario_text(), folder, callbacks=[Stop()], progress=False)
    assert list(folder.rglob("*.checkpoint"))
    return folder


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of another seed, for files to be exchanged with."""
    folder = tmp_path_factory.mktemp("other") / "run"
    package.run(scenario_text(), folder, overrides={"seed": 4}, progress=False)
    return folder


def _flip(path: Path, _: Path) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[len(content) // 2] ^= 4
    path.write_bytes(content)


def _truncate(path: Path, _: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _swap(path: Path, theirs: Path) -> None:
    if theirs.is_file():
        shutil.copyfile(theirs, path)
    else:
        path.write_bytes(b"something else")


def _forge(path: Path, _: Path) -> None:
    """Change a value so that the file is whole by itself: a checksum that is right, text that parses, hashes that agree."""
    if path.suffix == ".parquet":
        _forge_table(path)
    elif path.name == "run.json":
        path.write_text(re.sub(r'"seed": 3', '"seed": 5', path.read_text()))
    elif path.name == "scenario.toml":
        path.write_text(path.read_text().replace("learning_rate = 0.1", "learning_rate = 0.2"))
    else:
        path.write_bytes(path.read_bytes() + b"\n")
    manifest = path.parent / "run.json"
    if path.name in ("trace.parquet", "events.parquet"):
        facts = json.loads(manifest.read_text()) | {f"{path.stem}_hash": file_hash(path)}
        manifest.write_text(json.dumps(facts))


def _forge_table(path: Path) -> None:
    table = pq.read_table(path)
    column = next(
        f.name for f in table.schema if pa.types.is_floating(f.type) and f.name not in ("round", "wall_s")
    )
    place = table.schema.get_field_index(column)
    changed = pc.add(pc.fill_null(table[column], 0.0), 0.25).cast(table.schema.field(column).type)
    metadata = {**(table.schema.metadata or {}), SEAL_KEY: SEAL_MARK + SEAL_BLANK}
    table = table.set_column(place, table.schema.field(column), changed).replace_schema_metadata(metadata)
    pq.write_table(table, path, compression="zstd", version="2.6")
    seal(path)


WAYS: dict[str, Callable[[Path, Path], None]] = {
    "delete": lambda path, _: path.unlink(),
    "empty": lambda path, _: path.write_bytes(b""),
    "truncate": _truncate,
    "flip a bit": _flip,
    "garbage": lambda path, _: path.write_bytes(bytes(range(256)) * 8),
    "swap": _swap,
    "forge": _forge,
}


@dataclass(frozen=True)
class Told:
    """What a verb answered with."""

    exit_code: int
    out: str
    err: str


def _open_run(folder: Path) -> Told:
    """Open a run in Python and read all there is, as a verb would."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            opened = package.open_run(folder)
            names = ("rounds", "clients", "similarity", "trace", "events")
            tables = [opened.read(name).to_csv() for name in names]
            models = [
                str(opened.model_state(label))
                for label in opened.manifest["strategies"]
                if _kept(opened, label)
            ]
            out = "".join([*tables, *models, opened.status, str(opened.summary())])
        except FdsimError as error:
            return Told(error.exit_code, "", str(error))
    return Told(0, out, "".join(f"warning: {each.message}" for each in told))


def _kept(opened: Any, label: str) -> bool:
    return "final.pt" in opened.manifest["strategies"][label].get("models", {})


def _resume(folder: Path) -> Told:
    try:
        run(str(folder))
    except FdsimError as error:
        return Told(error.exit_code, "", str(error))
    return Told(0, "", "")


#: What a verb says that differs from time to time: sizes, dates, real time.
_VARIES = re.compile(r"\d+(\.\d+)? (B|kB|MB)\b|20\d\d-\d\d-\d\d[ T][\d:]+|[\s│┃─━┏┓└┘├┤┡┩╇┳┴┼]+")


class Tamperer:
    """Tampers with copies of a run and asks verbs about them."""

    def __init__(
        self, original: Path, other: Path, whole: Path, place: Path, fdsim: Callable[..., Any]
    ) -> None:
        self._original, self._other, self._whole, self._fdsim = original, other, whole, fdsim
        self._copy = place / "runs" / "run"
        self._expected: dict[str, str] = {}

    def fresh(self) -> Path:
        """Return a copy to tamper with, at the same place each time."""
        shutil.rmtree(self._copy.parent, ignore_errors=True)
        shutil.copytree(self._original, self._copy)
        return self._copy

    def ask(self, verb: str) -> Told:
        """Ask a verb about the copy."""
        if verb == "open_run":
            return _open_run(self._copy)
        if verb == "resume":
            return _resume(self._copy)
        given = {"list runs": self._copy.parent, "explain": self._copy / "scenario.toml"}.get(
            verb, self._copy
        )
        answer = self._fdsim(*verb.split(), given)
        page = self._copy / "report.html"
        more = page.read_text(encoding="utf-8") if verb == "report" and answer.exit_code == 0 else ""
        return Told(answer.exit_code, answer.out + more, answer.err)

    def judge(self, verb: str, file: Path, way: str) -> str:
        """Tamper with a file of the copy, ask a verb, and say what came of it."""
        if verb not in self._expected:
            self.fresh()
            self._expected[verb] = _VARIES.sub(" ", self.ask(verb).out)
        WAYS[way](self.fresh() / file, self._other / file)
        told = self.ask(verb)
        if "This is a bug" in told.err or told.exit_code not in (0, 1, 2, 3):
            return f"bug: {told.err}"
        if verb == "resume":
            if told.exit_code == 0:
                same_run(self._copy, self._whole)
                return "made again or untouched, equal"
            return "refused" if told.exit_code == 2 else f"failed: {told.err}"
        if told.exit_code:
            return "refused"
        if "warning" in told.err or (verb == "list runs" and re.search("edited|damaged", told.out)):
            return "warned"
        if _VARIES.sub(" ", told.out) == self._expected[verb]:
            return "of no consequence"
        # Whoever edits a scenario has another scenario; a folder without run.json is no run.
        if verb == "explain" or (verb == "list runs" and (file.name, way) == ("run.json", "delete")):
            return "taken as what it is now"
        return "UNNOTICED"


FINE = frozenset(
    {"made again or untouched, equal", "refused", "warned", "of no consequence", "taken as what it is now"}
)
VERBS = (
    "show",
    "report",
    "verify --quick",
    "compare",
    "list runs",
    "explain",
    "theory",
    "resume",
    "open_run",
)


def _files(folder: Path) -> list[Path]:
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def _tamper(tamperer: Tamperer, files: list[Path], ways: list[str], verbs: list[str]) -> Counter[str]:
    found = Counter[str]()
    for file in files:
        for way in ways:
            for verb in verbs:
                verdict = tamperer.judge(verb, file, way)
                found[verdict] += 1
                if verdict not in FINE:
                    # Standard output is read by the verbs' fixture.
                    print(f"{way} {file}, {verb}: {verdict}", file=sys.__stderr__, flush=True)
    return found


@pytest.mark.filterwarnings("ignore")
def test_a_few_files_are_tampered_with(made: Path, tmp_path: Path, fdsim: Callable[..., Any]) -> None:
    tamperer = Tamperer(made, made, made, tmp_path, fdsim)
    files = [Path("trace.parquet"), Path("rounds/strategy=fdms/part-000000.parquet"), Path("run.json")]
    found = _tamper(tamperer, files, ["forge"], ["show", "compare", "list runs", "open_run"])
    assert set(found) <= FINE, found
    assert found["warned"] + found["refused"] == found.total()


@pytest.mark.filterwarnings("ignore")
def test_a_lost_event_log_of_a_stopped_run_is_told(
    made: Path, stopped: Path, tmp_path: Path, fdsim: Callable[..., Any]
) -> None:
    tamperer = Tamperer(stopped, stopped, made, tmp_path, fdsim)
    found = _tamper(tamperer, [Path("events.parquet")], ["delete"], ["show"])
    assert found == {"warned": 1}


@pytest.mark.reliability
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("state", ["complete", "stopped"])
def test_every_file_is_tampered_with_in_every_way_under_every_verb(
    state: str, made: Path, stopped: Path, other: Path, tmp_path: Path, fdsim: Callable[..., Any]
) -> None:
    original = made if state == "complete" else stopped
    tamperer = Tamperer(original, other, made, tmp_path, fdsim)
    files = _files(original)
    found = _tamper(tamperer, files, list(WAYS), list(VERBS))
    print(
        f"\ntampering, {state} run: {len(files)} files × {len(WAYS)} ways × {len(VERBS)} verbs = {found.total()}: {dict(found)}"
    )
    assert set(found) <= FINE


def _manifest_mutants(count: int, made: Path, place: Path) -> Counter[str]:
    """Open copies of a run whose run.json says anything, and read all there is."""
    folder, found = place / "run", Counter[str]()
    shutil.copytree(made, folder)
    facts = json.loads((made / "run.json").read_text())
    for index in range(count):
        (folder / "run.json").write_bytes(json_mutant(facts, stream(SEED, "run.json", index)))
        try:
            told = _open_run(folder)
            found["refused" if told.exit_code else "read"] += 1
        except Exception as error:
            print(f"run.json, mutant {index}: {error!r}", flush=True)
            found[f"bug: {error!r}"] += 1
    return found


@pytest.mark.filterwarnings("ignore")
def test_a_few_mutants_of_run_json_are_read_or_refused(made: Path, tmp_path: Path) -> None:
    assert set(_manifest_mutants(20, made, tmp_path)) <= {"read", "refused"}


@pytest.mark.reliability
@pytest.mark.filterwarnings("ignore")
def test_mutants_of_run_json_are_read_or_refused(made: Path, tmp_path: Path) -> None:
    found = _manifest_mutants(1_000, made, tmp_path)
    print(f"\nmutants of run.json, seed {SEED}: {found.total()}: {dict(found)}")
    assert set(found) <= {"read", "refused"}
