"""Traces, availability files and logs to import, changed at random: read, or refused with a message; never a bug."""

from __future__ import annotations

import json
import pickle
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mutants import TOKENS, text_mutant

from fdsim.errors import FdsimError
from fdsim.files import SEAL_BLANK, SEAL_KEY, SEAL_MARK, seal
from fdsim.rng import stream
from fdsim.trace import open_trace, plain_round, write_trace
from fdsim.trace.availability import observe, read_availability, write_availability
from fdsim.trace.importers.fedscale import read_fedscale
from fdsim.trace.importers.flash import read_flash
from fdsim.trace.importers.interval_csv import read_interval_csv
from fdsim.trace.stats import stats_rows

SEED = 15
DAY_S = 86_400.0
NUMBERS = (-1, 0, 1, 2**31 - 1, 1e12, -1e12, 1e308, float("nan"), float("inf"), 0.5, 1e-300)
WORDS = ("", "completed", "dropped", "offline", "wifi", "\x00", "x" * 1000, "not_selected")
TYPES = (pa.int8(), pa.int64(), pa.float32(), pa.string(), pa.bool_(), pa.binary(), pa.null(), pa.date32())
METADATA = (
    "",
    "0",
    "-1",
    "9" * 30,
    "²",
    "[" * 3000,
    "{}",
    "null",
    "[1, 2]",
    '[["d", 0, 1e99, []]]',
    "\ufffd",
    "1.5",
)


def _pick(choices: Any, rng: np.random.Generator) -> Any:
    return choices[int(rng.integers(len(choices)))]


def _cells(table: pa.Table, rng: np.random.Generator) -> pa.Table:
    """Change a few cells of one column to anything that its type, or the type of what is put there, can hold."""
    place = int(rng.integers(table.num_columns))
    values = table.column(place).to_pylist()
    for _ in range(int(rng.geometric(0.5))):
        if values:
            values[int(rng.integers(len(values)))] = _pick((*NUMBERS, *WORDS, None), rng)
    name = table.schema.names[place]
    for wanted in (table.schema.field(place).type, None):
        try:
            return table.set_column(place, name, pa.array(values, type=wanted))
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            continue
    return table


def _column(table: pa.Table, rng: np.random.Generator) -> pa.Table:
    """Remove, rename, repeat or retype one column."""
    place = int(rng.integers(table.num_columns))
    name, way = table.schema.names[place], int(rng.integers(4))
    if way == 0 and table.num_columns > 1:
        return table.remove_column(place)
    if way == 1:
        return table.rename_columns(
            [_pick((name + "x", "round", ""), rng) if n == name else n for n in table.schema.names]
        )
    if way == 2:
        return table.append_column(name, table.column(place))
    try:
        return table.set_column(place, name, table.column(place).cast(_pick(TYPES, rng), safe=False))
    except (pa.ArrowException, ValueError, TypeError):
        return table.set_column(place, name, pa.nulls(len(table), _pick(TYPES, rng)))


def _rows(table: pa.Table, rng: np.random.Generator) -> pa.Table:
    """Remove, repeat or shuffle rows."""
    rows, way = np.arange(len(table)), int(rng.integers(4))
    if not len(rows):
        return table
    if way == 0:
        rows = np.delete(rows, int(rng.integers(len(rows))))
    elif way == 1:
        rows = np.sort(np.append(rows, int(rng.integers(len(rows)))))
    elif way == 2:
        rows = rng.permutation(rows)
    else:
        rows = rows[: int(rng.integers(len(rows)))]
    return table.take(pa.array(rows))


def _metadata(table: pa.Table, rng: np.random.Generator) -> pa.Table:
    known = dict(table.schema.metadata or {})
    key = _pick((*known, b"fdsim_clients", b"fdsim_true_cluster", b"fdsim_devices"), rng)
    known[key] = str(_pick(METADATA, rng)).encode()
    if rng.random() < 0.3:
        del known[key]
    return table.replace_schema_metadata(known)


def _parquet_mutants(path: Path) -> Callable[[np.random.Generator], bytes]:
    """Return a source of mutants of a Parquet file, each with a checksum that is right, so that its content is looked at."""
    whole, waiting = pq.read_table(path), path.with_suffix(".made")

    def mutant(rng: np.random.Generator) -> bytes:
        table = whole
        for _ in range(int(rng.geometric(0.7))):
            table = _pick((_cells, _cells, _column, _rows, _metadata), rng)(table, rng)
        metadata = {**(table.schema.metadata or {}), SEAL_KEY: SEAL_MARK + SEAL_BLANK}
        pq.write_table(
            table.replace_schema_metadata(metadata), waiting, row_group_size=int(rng.integers(1, 200))
        )
        seal(waiting)
        content = bytearray(waiting.read_bytes())
        if rng.random() < 0.1:
            content[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
        return bytes(content)

    return mutant


def _text_mutants(text: str) -> Callable[[np.random.Generator], bytes]:
    return lambda rng: text_mutant(text, rng)


def _read_trace(path: Path) -> None:
    for _ in open_trace(path):
        pass
    stats_rows(path)


def _read_availability(path: Path) -> None:
    read_availability(path)
    stats_rows(path)


Source = tuple[str, Callable[[Path], Any], Callable[[np.random.Generator], bytes]]


def _sources(folder: Path) -> Iterator[Source]:
    """Yield the name of each kind of file, what reads it, and what makes its mutants."""
    rng = stream(SEED, "traces to mutate")
    rounds = [plain_round(r, rng.random(6) < 0.7, 60.0) for r in range(8)]
    write_trace(folder / "trace.parquet", rounds, true_cluster=np.arange(6) % 2)
    yield "trace.parquet", _read_trace, _parquet_mutants(folder / "trace.parquet")
    times = np.sort(rng.uniform(0, 3 * DAY_S, 20)).reshape(-1, 2)
    devices = [
        observe(f"d{i}", (0.0, 3 * DAY_S), {"wifi": times, "idle": times + 0.5}, "test") for i in range(4)
    ]
    write_availability(folder / "log.parquet", devices, "test")
    yield "log.parquet", _read_availability, _parquet_mutants(folder / "log.parquet")
    events = ("screen_on", "screen_off", "battery_charged_on", "battery_charged_off", "wifi", "4G", "51.0%")
    lines = [f"2020-02-0{1 + i // 20} {i % 20:02d}:13:02 \t{_pick(events, rng)}" for i in range(60)]
    flash = {str(d): {"guid": "g", "model": "m", "messages": "\n".join(lines[d:])} for d in range(3)}
    yield "flash.json", read_flash, _text_mutants(json.dumps(flash))
    states = ("AVL_TRAIN", "AVL_EVAL", "UN_AVL")
    entries = {
        str(d): {"avl_events_2_state": [[600.0 * i, _pick(states, rng)] for i in range(40)]} for d in range(3)
    }
    yield "fedscale.json", read_fedscale, _text_mutants(json.dumps(entries))
    logs = {
        d: {"active": [10, 500, 900], "inactive": [100, 700, 1500], "finish_time": 172_800} for d in range(3)
    }
    yield "fedscale.pkl", read_fedscale, _pickle_mutants(pickle.dumps(logs, protocol=2))
    rows = [f"d{i // 10},{_pick(('idle', 'wifi'), rng)},{100 * i},{100 * i + 50}" for i in range(30)]
    yield "log.csv", read_interval_csv, _text_mutants("\n".join(["device,state,start_s,end_s", *rows]))


def _pickle_mutants(content: bytes) -> Callable[[np.random.Generator], bytes]:
    def mutant(rng: np.random.Generator) -> bytes:
        changed = bytearray(content)
        for _ in range(int(rng.geometric(0.5))):
            at = int(rng.integers(len(changed)))
            if rng.random() < 0.6:
                changed[at] = int(rng.integers(256))
            else:
                changed[at:at] = _pick(TOKENS, rng).encode()
        return bytes(changed)

    return mutant


def _judge(read: Callable[[Path], Any], path: Path) -> str:
    try:
        read(path)
        return "read"
    except FdsimError as error:
        fine = error.exit_code == 2 and str(error).replace("\n", "").isprintable()
        return "refused" if fine else f"exit code {error.exit_code}: {error!r}"
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {str(error)[:200]} ({Path(last.filename).name}:{last.lineno})"


def _fuzz(count: int, folder: Path) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for name, read, mutant in _sources(folder):
        found[name] = Counter()
        for index in range(count):
            path = folder / f"mutant-{name}"
            path.write_bytes(mutant(stream(SEED, "trace mutants", name, index)))
            verdict = _judge(read, path)
            found[name][verdict] += 1
            if verdict not in ("read", "refused"):
                path.rename(folder / f"wrong-{index}-{name}")
                print(f"{folder}/wrong-{index}-{name}: {verdict}", flush=True)
    return found


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_few_mutants_of_traces_and_logs_are_read_or_refused(tmp_path: Path) -> None:
    for name, found in _fuzz(25, tmp_path).items():
        assert set(found) <= {"read", "refused"}, (name, found)


@pytest.mark.reliability
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_mutants_of_traces_and_logs_are_read_or_refused(tmp_path: Path) -> None:
    found = _fuzz(600, tmp_path)
    total = sum(each.total() for each in found.values())
    print(
        f"\ntrace and log mutants, seed {SEED}: {total}: { {name: dict(each) for name, each in found.items()} }"
    )
    assert all(set(each) <= {"read", "refused"} for each in found.values())
    assert total >= 2_000
